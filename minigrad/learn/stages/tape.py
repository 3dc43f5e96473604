"""A scalar tape in forty lines.

A value remembers its number (data), the values that it was computed from
(inputs), and its derivative with respect to each of them (partials). That is
the tape. Addition is done:

    y = a + b      inputs (a, b)      partials (1, 1)

Write the rest:

1. `__mul__`: the product of two values, or of a value and a number.
2. `tanh`. The derivative of y = tanh(x) is 1 - y**2.
3. `backward`: adds to `grad` of every leaf that self depends on the
   derivative of self with respect to it. A leaf is a value without inputs,
   and its `grad` begins at 0. The rule: a value that was used several times
   gets a contribution from each use, and they add. So a value may pass its
   gradient on only after all its contributions have arrived.

Two more requirements:

- A second call of `backward` adds to the gradients of the leaves, as a
  second batch would. Those of all other values begin at 0 again.
- A chain of 5,000 operations works. Python allows only about 1,000 nested
  calls.

`number` counts the values in the order in which they were made.
"""

import itertools
import math


class Value:
    numbers = itertools.count()

    def __init__(self, data, inputs=(), partials=()):
        self.data = data
        self.grad = 0.0
        self.inputs = inputs
        self.partials = partials
        self.number = next(Value.numbers)

    def __add__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other):  # yours
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def tanh(self):  # yours
        y = math.tanh(self.data)
        return Value(y, (self,), (1 - y * y,))

    def backward(self):  # yours
        reached, stack = {self}, [self]
        while stack:
            for x in stack.pop().inputs:
                if x not in reached:
                    reached.add(x)
                    stack.append(x)
        self.grad = 1.0
        # A value is newer than its inputs: from the newest to the oldest, all contributions arrive in time.
        for y in sorted(reached, key=lambda value: value.number, reverse=True):
            for x, partial in zip(y.inputs, y.partials):
                x.grad += y.grad * partial
            if y.inputs:
                y.grad = 0.0
