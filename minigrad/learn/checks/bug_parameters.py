"""Find the bug: tensors that are no parameters, so that the optimizer does not know them."""

import minigrad as mg
from minigrad import nn, optim
from minigrad.learn.checking import Failure, Part
from minigrad.learn.solutions.bug_parameters import LayerNorm

HINTS = (
    "Print list(LayerNorm(3).parameters()). The optimizer trains what it yields.",
    "A module finds its parameters by their type. How do nn.Linear and the others make theirs?",
    "self.weight = nn.Parameter(mg.ones(...)), and the same for bias.",
)


def cases(draw):
    for n in (1, draw.size(2, 4)):
        d = draw.size(2, 4)
        yield {"x": draw(n, d), "g": draw(n, d)}


def call(kind, x, g):
    """The names of the parameters, those of the state, and weight and bias after a step of SGD."""
    layer = kind(x.shape[-1])
    if not isinstance(layer, nn.Module):
        raise Failure("LayerNorm has to be a subclass of nn.Module.")
    if not isinstance(getattr(layer, "weight", None), mg.Tensor) or not isinstance(
        getattr(layer, "bias", None), mg.Tensor
    ):
        raise Failure("The layer itself has to hold its tensors weight and bias, as self.weight and self.bias.")
    found = sorted(f"{name}{'' if p.requires_grad else ' (frozen)'}" for name, p in layer.named_parameters())
    names = ", ".join(found) or "none"
    state = ", ".join(sorted(layer.state_dict())) or "none"
    y = layer(mg.tensor(x))
    if y.requires_grad and found:
        optimizer = optim.SGD(layer.parameters(), lr=0.5)
        y.backward(mg.tensor(g))
        optimizer.step()
    return y.detach().numpy(), names, state, layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()


class Mine(LayerNorm):
    """A right layer whose weight and bias are replaced."""

    def __init__(self, width, eps=1e-5):
        super().__init__(width, eps)
        del self.weight, self.bias
        self.make(width)


class Plain(Mine):
    def make(self, width):
        self.weight = mg.ones(width, dtype="float64", requires_grad=True)
        self.bias = mg.zeros(width, dtype="float64", requires_grad=True)


class HalfDone(Mine):
    def make(self, width):
        self.weight = nn.Parameter(mg.ones(width, dtype="float64"))
        self.bias = mg.zeros(width, dtype="float64", requires_grad=True)


class Buffers(Mine):
    def make(self, width):
        self.register_buffer("weight", mg.ones(width, dtype="float64"))
        self.register_buffer("bias", mg.zeros(width, dtype="float64"))


class Frozen(Mine):
    def make(self, width):
        self.weight = nn.Parameter(mg.ones(width, dtype="float64"), requires_grad=False)
        self.bias = nn.Parameter(mg.zeros(width, dtype="float64"), requires_grad=False)


class Detached(LayerNorm):
    def forward(self, x):
        return mg.layer_norm(x, self.width, self.weight.detach(), self.bias.detach(), self.eps) + 0.0 * self.bias


class Exchanged(Mine):
    def make(self, width):
        self.weight = nn.Parameter(mg.zeros(width, dtype="float64"))
        self.bias = nn.Parameter(mg.ones(width, dtype="float64"))


PARTS = [
    Part(
        "LayerNorm", LayerNorm, cases,
        ("y", "the names of the parameters", "the names in the saved state", "weight after a step", "bias after a step"),
        {
            """layer.parameters() is empty. The optimizer trains what it finds there. This is the bug.""": Plain,
            "weight is a parameter now. bias is not.": HalfDone,
            """Buffers are saved with the module but not trained. weight and bias have to be parameters.""": Buffers,
            "They are parameters, but with requires_grad=False nothing trains them.": Frozen,
            "They are parameters, but forward uses detached copies, so that no gradient arrives.": Detached,
            "weight begins with ones and bias with zeros; here it is the reverse.": Exchanged,
        },
        call=call,
    )
]  # fmt: skip
