"""einops on tensors: its results and their gradients are PyTorch's."""

import einops
import numpy as np
import pytest
from checks import array, close
from einops.layers import RearrangeMixin
from threaded import python

import minigrad as mg
from minigrad import nn

FUNCTIONS = {
    "rearrange": lambda x: einops.rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=3),
    "rearrange a list": lambda x: einops.rearrange([x, x * x], "n b h w c -> b (n h) w c"),
    "repeat": lambda x: einops.repeat(x, "b h w c -> b h (w 2) c n", n=3),
    "einsum": lambda x: einops.einsum(x, x, "b h w c, b h w d -> b c d"),
    "pack": lambda x: einops.pack([x, x[:, 0]], "b * c")[0],
    "unpack": lambda x: einops.unpack(x, [[1], [3]], "b * w c")[1],
    **{
        name: lambda x, name=name: einops.reduce(x, "b (h 2) w c -> b h c", name)
        for name in ("mean", "sum", "max", "min", "prod")
    },
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, device, rng):
    torch = pytest.importorskip("torch")
    values = rng.standard_normal((2, 4, 6, 3))
    x, theirs = mg.tensor(values, device=device, requires_grad=True), torch.tensor(values, requires_grad=True)
    y, expected = FUNCTIONS[name](x), FUNCTIONS[name](theirs)
    close(array(y), expected.detach().numpy(), 16, "float64")
    np.testing.assert_array_equal(einops.asnumpy(y), array(y))
    g = rng.standard_normal(y.shape)
    (dx,) = mg.grad(y, [x], [mg.tensor(g, device=device)])
    (expected,) = torch.autograd.grad(expected, [theirs], [torch.tensor(g)])
    close(array(dx), expected.numpy(), 16, "float64")


def test_a_layer_of_its_parts():
    class Rearrange(RearrangeMixin, nn.Module):
        def forward(self, x):
            return self._apply_recipe(x)

    model = nn.Sequential(Rearrange("b h w -> b (h w)"), nn.Linear(12, 2))
    assert model(mg.ones((5, 3, 4))).shape == (5, 2)


@pytest.mark.parametrize("before", [
    "import einops", "import minigrad", "import importlib.util, minigrad; importlib.util.find_spec('einops')",
])  # fmt: skip
def test_in_either_order(before):
    python(
        f"{before}\nimport einops, minigrad\n"
        "assert einops.rearrange(minigrad.ones((2, 3)), 'a b -> b a').shape == (3, 2)"
    )


def test_minigrad_needs_no_einops():
    python("import sys\nsys.modules['einops'] = None\nimport minigrad")
