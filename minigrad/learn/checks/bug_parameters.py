"""Find the bug: tensors that are no parameters, so that the optimizer does not know them."""

import minigrad as mg
from minigrad import nn, optim
from minigrad.learn.checking import Failure, Part, mistakes
from minigrad.learn.stages.bug_parameters import LayerNorm

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
    """Return the names of the parameters and of the saved state, and weight and bias after a step of SGD."""
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


MADE = 'dtype="float64")'
PARTS = [
    Part(
        "LayerNorm", LayerNorm, cases,
        ("y", "the names of the parameters", "the names in the saved state", "weight after a step", "bias after a step"),
        mistakes(LayerNorm, {
            "layer.parameters() is empty. The optimizer trains what it finds there. This is the bug.":
                {"nn.Parameter(": "(", MADE: 'dtype="float64", requires_grad=True)'},
            "weight is a parameter now. bias is not.":
                {f"nn.Parameter(mg.zeros(width, {MADE})": 'mg.zeros(width, dtype="float64", requires_grad=True)'},
            "Buffers are saved with the module but not trained. weight and bias have to be parameters.": {
                "self.weight = nn.Parameter(": 'self.register_buffer("weight", ',
                "self.bias = nn.Parameter(": 'self.register_buffer("bias", ',
            },
            "They are parameters, but with requires_grad=False nothing trains them.": {MADE: f"{MADE}, requires_grad=False"},
            "They are parameters, but forward uses detached copies, so that no gradient arrives.": {
                "self.weight, self.bias, self.eps)": "self.weight.detach(), self.bias.detach(), self.eps) + 0.0 * self.bias",
            },
            "weight begins with ones and bias with zeros; here it is the reverse.": {
                "self.weight = nn.Parameter(mg.ones": "self.weight = nn.Parameter(mg.zeros",
                "self.bias = nn.Parameter(mg.zeros": "self.bias = nn.Parameter(mg.ones",
            },
        }),
        call=call,
    )
]  # fmt: skip
