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

    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def tanh(self):
        y = math.tanh(self.data)
        return Value(y, (self,), (1 - y * y,))

    def backward(self):
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
