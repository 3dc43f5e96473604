"""A scalar tape: operations, chains, values that are used twice, a second backward pass, and depth."""

import inspect

import minigrad as mg
from minigrad.learn.checking import Failure, Part, mistakes
from minigrad.learn.stages.tape import Value

HINTS = (
    """The partial of y = a * b with respect to a is b.data, and the other way round. They are plain numbers. Treat a number
    as `__add__` does.""",
    """`backward` begins with self.grad = 1.0. One value y passes on: for each x and partial in zip(y.inputs, y.partials),
    x.grad += y.grad * partial.""",
    """In which order? A value is made after its inputs, so its number is larger. Collect everything that self depends on
    (a set, and a list of what is still to be visited), and go through it in descending order of number.""",
    """When y has passed its gradient on and has inputs, set y.grad = 0.0.""",
)
DEPTH = 5000


def chain(x, b):
    for _ in range(DEPTH):
        x = x + b
    return x


def squares(a, b):
    y = a + b
    for _ in range(40):
        y = (y + y) * 0.5
    return y


PROGRAMS = {
    "y = a + b": lambda a, b: a + b,
    "y = a * b": lambda a, b: a * b,
    "y = a * 3 + b": lambda a, b: a * 3.0 + b,
    "y = a.tanh() + b": lambda a, b: a.tanh() + b,
    "y = (a * b).tanh()": lambda a, b: (a * b).tanh(),
    "y = a * a + b": lambda a, b: a * a + b,
    "y = a * b + b": lambda a, b: a * b + b,
    "p = a * b; y = p * p": lambda a, b: (lambda p: p * p)(a * b),
    "p = a + b; q = p * a; y = p * q": lambda a, b: (lambda p: p * (p * a))(a + b),
    "p = a * b; q = p * 2; y = q + q * p": lambda a, b: (lambda p: (lambda q: q + q * p)(p * 2.0))(a * b),
    "y = a + b, and 40 times y = (y + y) * 0.5": squares,
    "y = a, and 5000 times y = y + b": chain,
}


def programs(first, last):
    names = list(PROGRAMS)[first:last]

    def cases(draw):
        for name in names:
            a, b = draw(2) / 10
            yield {"program": name, "a": float(a), "b": float(b)}

    return cases


def forward(kind, program, a, b):
    y = PROGRAMS[program](kind(a), kind(b))
    if not hasattr(y, "backward"):
        raise Failure(f"y is {type(y).__name__}. Every operation has to return a Value, with its inputs and partials.")
    return y.data


def passes(count):
    def call(kind, program, a, b):
        a, b = kind(a), kind(b)
        y = PROGRAMS[program](a, b)
        for _ in range(count):
            y.backward()
        return float(a.grad), float(b.grad)

    return call


class Tensor:
    """minigrad's tensor in the place of a Value."""

    def __init__(self, data):
        self.tensor = data if isinstance(data, mg.Tensor) else mg.tensor(data, dtype="float64", requires_grad=True)

    def __add__(self, other):
        return Tensor(self.tensor + getattr(other, "tensor", other))

    def __mul__(self, other):
        return Tensor(self.tensor * getattr(other, "tensor", other))

    def tanh(self):
        return Tensor(mg.tanh(self.tensor))

    def backward(self):
        self.tensor.backward(retain_graph=True)

    @property
    def data(self):
        return self.tensor.item()

    @property
    def grad(self):
        return self.tensor.grad.item()


BODY = inspect.getsource(Value.backward).partition("\n")[2]  # all lines of it but the first
SEED, CLEAR = "        self.grad = 1.0\n", "            if y.inputs:\n                y.grad = 0.0\n"
CALLS = """
        self.grad = 1.0
        for x, partial in zip(self.inputs, self.partials):
            x.grad += self.grad * partial
            x.backward()
"""
EVERY_USE = """
        self.grad = 1.0
        stack = [self]
        while stack:
            y = stack.pop()
            for x, partial in zip(y.inputs, y.partials):
                x.grad += y.grad * partial
                stack.append(x)
"""
GIVEN = """
        stack = [(self, 1.0)]
        while stack:
            y, grad = stack.pop()
            y.grad += grad
            stack.extend((x, y.grad * partial) for x, partial in zip(y.inputs, y.partials))
"""
EVERY_PATH = """
        paths = [(self, 1.0)]
        while paths:
            y, grad = paths.pop()
            y.grad += grad if not y.inputs else 0.0
            paths += [(x, grad * partial) for x, partial in zip(y.inputs, y.partials)]
"""
RECURSIVE = """
        reached = set()

        def visit(y):
            if y not in reached:
                reached.add(y)
                for x in y.inputs:
                    visit(x)

        visit(self)
"""
ORDER = "sorted(reached, key=lambda value: value.number, reverse=True)"
DEPTH_FIRST = """
        reached, stack = [], [self]
        while stack:
            y = stack.pop()
            if y not in reached:
                reached.append(y)
                stack.extend(y.inputs)
"""
GRADS = ("the gradient of a", "the gradient of b")
PARTS = [
    Part(
        "Value", Tensor, programs(0, 7), ("the value of y",),
        mistakes(Value, {
            "`other` may be a number, as in a * 3. Make a Value of it first, as `__add__` does.":
                {"Value(other)\n        return Value(self.data * ": "other\n        return Value(self.data * "},
        }),
        call=forward,
    ),
    Part(
        "Value", Tensor, programs(0, 5), GRADS,
        mistakes(Value, {
            "The partials of the product are swapped. The derivative of a * b with respect to a is b.":
                {"(other.data, self.data)": "(self.data, other.data)"},
            "The partial of tanh is 1 - y**2 with y = tanh(x), the result; yours is what 1 - x**2 gives.":
                {"1 - y * y": "1 - self.data**2"},
            """All gradients are 0. The backward pass begins with self.grad = 1.0: the derivative of y with respect to
            itself.""": {SEED: ""},
            """The inputs get 1.0 whatever the partials are. Either the partial is missing (x.grad += y.grad * partial), or
            x.backward() is called, which begins with x.grad = 1.0 again, as if x were the result.""": {BODY: CALLS},
            """The pass goes from the oldest value to the newest, from the leaves to the result. Turn the order round: a
            value passes its gradient on to its inputs, which are older.""": {", reverse=True": ""},
        }),
        call=passes(1),
    ),
    Part(
        "Value", Tensor, programs(5, 10), ("the gradient of a that is used twice", "the gradient of b that is used twice"),
        mistakes(Value, {
            """A value that is used twice has two contributions. The second one replaces the first: write += instead
            of =.""": {"x.grad +=": "x.grad ="},
            """x.backward() is called at every use of x, and passes on again what x has passed on before. Visit each value
            once, after everything that was computed from it.""": {BODY: CALLS.replace("= 1.0", "= self.grad or 1.0")},
            """A value that is used twice passes its gradient on twice, the second time with the first contribution in it. Visit
            each value once (keep a set), when its gradient is complete.""": [
                {BODY: body} for last in (EVERY_USE, GIVEN) for body in (last, last.replace("pop()", "pop(0)"))
            ],
            """A value passes its gradient on before all contributions have arrived. Visit the values in descending
            order of `number`: whatever was computed from a value is newer than it.""": {
                "{self}, [self]": "[self], [self]", "stack.pop()": "stack.pop(0)", "reached.add": "reached.append",
                ORDER: "reached",
            },
            """The order is the one of a depth-first walk, in which a value comes before others that were computed from it.
            Its gradient is not complete then. Visit the values in descending order of `number`.""": [
                {BODY.partition(SEED)[0]: DEPTH_FIRST[1:], ORDER: "reached"},
                {BODY.partition(SEED)[0]: DEPTH_FIRST[1:].replace("y.inputs", "reversed(y.inputs)"), ORDER: "reached"},
            ],
        }),
        call=passes(1),
    ),
    Part(
        "Value", Tensor, programs(10, 11), ("the gradient of a, if y is used twice 40 times",),
        mistakes(Value, {
            """It never finishes. If every use of a value walks down to the leaves again, there are 2**40 walks
            here. Visit each value once, when its gradient is complete.""": {BODY: EVERY_PATH},
        }),
        call=lambda kind, *case: passes(1)(kind, *case)[0], seconds=1,
    ),
    Part(
        "Value", Tensor, programs(11, 12), ("the gradient of b after 5000 operations",),
        mistakes(Value, {
            """Python's stack is full: the pass calls itself once for every operation. Keep a list of what is still to be
            visited instead.""": {BODY.partition(SEED)[0]: RECURSIVE},
        }),
        call=lambda kind, *case: passes(1)(kind, *case)[1],
    ),
    Part(
        "Value", Tensor, programs(5, 10), ("the gradient of a after two passes", "the gradient of b after two passes"),
        mistakes(Value, {
            """In the second pass, values in the middle still have their gradients of the first and pass them on again.
            Set y.grad = 0.0 when y has inputs and has passed its gradient on.""": {CLEAR: ""},
            """The second pass begins with new gradients of the leaves. It has to add to them: that is how gradients of
            several batches are summed.""": {SEED: f"        for y in reached:\n            y.grad = 0.0\n{SEED}"},
        }),
        call=passes(2),
    ),
]  # fmt: skip
