"""Derivatives times vectors, `jvp` and `hvp`, and the gradients of single samples."""

import numpy as np
import pytest
from checks import allocated, array, near, refuses, tensor
from peers import torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


def close(x, expected):
    near(x, expected, rtol=1e-10, atol=1e-10)


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# name: (minigrad's function, PyTorch's, the shapes of the arguments)
FUNCTIONS = {
    "norm": (lambda x, w: mg.layer_norm(x, 5, weight=w), lambda t, x, w: t.layer_norm(x, (5,), weight=w), [(3, 5), (5,)]),
    "attention": (
        attend, lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 4, 3)] * 3,
    ),
    "product": (lambda a, b: mg.tanh(a @ b).softmax(-1), lambda t, a, b: t.tanh(a @ b).softmax(-1), [(3, 4), (4, 2)]),
    "linear": (lambda a, b: a * 2, lambda t, a, b: a * 2, [(3,), (2,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jvp_is_the_jacobian_times_the_tangent_and_pytorchs(name, device, rng):
    f, theirs, shapes = FUNCTIONS[name]
    xs, vs = ([rng.standard_normal(shape) for shape in shapes] for _ in range(2))
    ours = [tensor(x, device) for x in xs]
    y, t = mg.jvp(f, ours, [tensor(v, device) for v in vs])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = torch.func.jvp(
            lambda *args: theirs(torch, *args), tuple(map(torch.from_numpy, xs)), tuple(map(torch.from_numpy, vs))
        )
    close(y, expected[0].numpy())
    close(t, expected[1].numpy())
    total = 0
    for k, v in enumerate(vs):
        j = array(mg.jacobian(lambda x, k=k: f(*ours[:k], x, *ours[k + 1 :]), ours[k]))
        total = total + np.tensordot(j, v, v.ndim)
    close(t, total)
    assert not y.requires_grad
    assert not t.requires_grad


def test_jvp_of_structures(device):
    """Several results, integers, constants, results that do not use an argument, and arguments that are dicts."""
    x, v = tensor([1.0, 3.0, 2.0], device), tensor([1.0, 10.0, 100.0], device)

    def f(p, unused):
        return {"s": p["a"] * p["a"], "rest": (mg.argmax(p["a"]), mg.ones(2, device=device), [p["a"], p["a"]])}

    y, t = mg.jvp(f, ({"a": x}, x), ({"a": v}, v))
    close(y["s"], [1, 9, 4])
    close(t["s"], [2, 60, 400])
    close(t["rest"][1], [0, 0])
    assert t["rest"][0].dtype == y["rest"][0].dtype == "int64"
    assert array(t["rest"][0]) == 0
    for same in t["rest"][2]:
        close(same, array(v))
    close(mg.jvp(mg.sqrt, tensor([0.0, 4.0], device), tensor([0.0, 1.0], device))[1][1], 0.25)
    close(mg.jvp(lambda p: p["a"].sum(), {"a": x}, {"a": v * 0})[1], 0)


def test_jvp_can_be_differentiated_in_point_tangent_and_captured_tensors(device):
    x, v, w = (tensor(a, device, True) for a in ([2.0, 3.0], [5.0, 7.0], [1.0, 2.0]))
    y, t = mg.jvp(lambda x: w * x**3, x, v)
    dx, dv, dw = mg.grad(t.sum(), [x, v, w])
    close(dx, [60, 252])  # 6 w x v
    close(dv, [12, 54])  # 3 w x²
    close(dw, [60, 189])
    assert y.requires_grad
    plain = [tensor(a, device) for a in ([2.0, 3.0], [5.0, 7.0])]
    close(mg.jvp(lambda x: mg.jvp(lambda x: x**3, x, plain[1])[1], *plain)[1], [300, 882])  # 6 x v²
    with mg.no_grad():
        assert not mg.jvp(lambda x: w * x, x, v)[1].requires_grad
    assert x.grad is w.grad is None


def quartic(x, y):
    return (mg.layer_norm(x, 3) ** 4 * y).sum() + (x[:, 0] ** 3).sum()


def test_hvp_is_the_hessian_times_the_vector(device, rng):
    x, y, v, u = (rng.standard_normal((2, 3)) for _ in range(4))
    ours = [tensor(a, device) for a in (x, y)]
    h = array(mg.hessian(lambda x: quartic(x, ours[1]), ours[0]))
    close(mg.hvp(lambda x: quartic(x, ours[1]), ours[0], tensor(v, device)), np.tensordot(h, v, 2))

    def theirs(x, y):
        return (torch.layer_norm(x, (3,)) ** 4 * y).sum() + (x[:, 0] ** 3).sum()

    expected = torch.autograd.functional.hvp(
        theirs, tuple(map(torch.from_numpy, (x, y))), tuple(map(torch.from_numpy, (v, u)))
    )[1]
    found = mg.hvp(quartic, ours, [tensor(v, device), tensor(u, device)])
    assert type(found) is list
    for a, b in zip(found, expected, strict=True):
        close(a, b.numpy())
    named = mg.hvp(
        lambda p: quartic(p["x"], p["y"]),
        dict(zip("xy", ours, strict=True)),
        {"x": tensor(v, device), "y": tensor(u, device)},
    )
    close(named["x"], array(found[0]))


def test_hvp_of_what_has_no_second_derivative_and_of_histories(device):
    x, v = tensor([1.0, 2.0], device, True), tensor([3.0, 4.0], device)
    close(mg.hvp(mg.sum, x, v), [0, 0])
    close(mg.hvp(lambda x: mg.ones((), device=device), x, v), [0, 0])
    close(mg.grad(mg.hvp(lambda x: (x**4).sum(), x, v).sum(), x), [72, 192])  # 24 x v


def test_hvp_needs_memory_in_proportion():
    x = mg.ones(1 << 16)
    live = allocated()
    most = []

    def f(x):
        cubes = x**3
        for y in (x, cubes):
            y.register_hook(lambda g: most.append(mg.memory_allocated() - live))
        return cubes.sum()

    close(mg.hvp(f, x, x)[:3], [6, 6, 6])
    assert len(most) >= 3  # in both passes
    assert max(most) < 20 * x.nbytes
    assert allocated() == live


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)), (6, 4)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 3)).eval(), (6, 2, 5, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_samples(name, device, rng):
    """Each is that of the sample alone; PyTorch's vmap of grad gives the same, and their mean is the batch's."""
    make, shape = MODELS[name]
    model = make().double().to(device)
    x, labels = rng.standard_normal(shape), rng.integers(0, 3, shape[0])
    model[0].bias.requires_grad_(False)
    found = mg.per_sample_grad(F.cross_entropy, model, tensor(x, device), tensor(labels, device))
    assert list(found) == [name for name, p in model.named_parameters() if p.requires_grad]
    assert all(p.grad is None for p in model.parameters())
    F.cross_entropy(model(tensor(x, device)), tensor(labels, device)).backward()
    twins = {
        "mlp": lambda: [torch.nn.Linear(4, 5), torch.nn.LayerNorm(5), torch.nn.Tanh(), torch.nn.Linear(5, 3)],
        "conv": lambda: [torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(27, 3)],
    }
    theirs = torch.nn.Sequential(*twins[name]()).double().eval()
    theirs.load_state_dict({k: torch.from_numpy(array(v).copy()) for k, v in model.state_dict().items()})
    values = {k: v.detach() for k, v in theirs.named_parameters()}

    def loss(values, x, label):
        out = torch.func.functional_call(theirs, values, (x[None],))
        return torch.nn.functional.cross_entropy(out, label[None])

    expected = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(
        values, torch.from_numpy(x), torch.from_numpy(labels)
    )
    for k, g in found.items():
        close(g, expected[k].numpy())
        close(g.mean(0), array(dict(model.named_parameters())[k].grad))


def test_gradients_of_no_sample_and_of_unused_parameters(device):
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)]).to(device)
    model.forward = model[0]
    assert mg.per_sample_grad(mg.sum, model, mg.ones((0, 2), device=device))["0.weight"].shape == (0, 1, 2)
    assert (
        array(mg.per_sample_grad(mg.sum, model, mg.ones((3, 2), device=device))["1.weight"]).tolist() == [[[0, 0]]] * 3
    )


class Captures(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(mg.ones(3))

    def forward(self, x):
        return F.batch_norm(x * self.gain.reshape(1, 3, 1), None, None, training=True)


@pytest.mark.parametrize("model", [nn.Sequential(nn.BatchNorm1d(3)), nn.BatchNorm1d(3, track_running_stats=False).eval(), Captures(),
                                   nn.RNN(3, 3, norm="batch", max_length=4)], ids=["layer", "eval", "function", "recurrent"])  # fmt: skip
def test_batch_normalization_couples_samples(model):
    parts = ["model.eval()"]
    refuses(ValueError, "per_sample_grad", parts, mg.per_sample_grad, lambda y: y[0].sum(), model, mg.ones((4, 3, 5)))
