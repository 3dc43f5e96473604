"""load_state_dict of what other libraries hold: parameters, other dtypes, other names, absent and shared entries."""

from types import SimpleNamespace

import numpy as np
import pytest
from checks import raises
from peers import torch

import minigrad as mg
from minigrad import nn, optim


class Lent:
    """A parameter as PyTorch and Paddle have it: only what `detach` returns shares its memory."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def detach(self):
        return self.values


def test_parameters_that_require_grad(device, tmp_path):
    layer = nn.Linear(2, 1, device=device)
    state = {"weight": Lent(np.array([[3.0, 4.0]])), "bias": Lent(np.ones(1, np.float32))}
    layer.load_state_dict(state)
    assert (layer.weight.tolist(), layer.bias.tolist()) == ([[3, 4]], [1])
    mg.save(state, tmp_path / "x")
    assert mg.load(tmp_path / "x")["weight"].tolist() == [[3, 4]]


class Brain(Lent):
    """A parameter in bfloat16, as Paddle names it; NumPy reads only what `float` returns."""

    dtype = SimpleNamespace(name="BFLOAT16")

    def detach(self):
        return self

    def float(self):
        return self.values


def test_parameters_of_half_precision(device):
    layer = nn.Linear(2, 1, bias=False, device=device)
    layer.load_state_dict({"weight": Brain(np.ones((1, 2), np.float32))})
    assert layer.weight.tolist() == [[1, 1]]


def test_parameters_of_torch(device):
    theirs = torch.nn.Linear(3, 4)
    for source in (theirs, theirs.double(), theirs.half(), theirs.bfloat16()):
        ours = nn.Linear(3, 4, device=device)
        ours.load_state_dict(dict(source.named_parameters()))
        assert ours.weight.tolist() == source.weight.float().tolist()


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int16", "uint64"])
def test_dtypes_that_a_module_does_not_have(dtype, device):
    module = nn.Module()
    module.register_buffer("count", mg.zeros(2, dtype="int64", device=device))
    module.register_parameter("weight", nn.Parameter(mg.zeros(2, device=device)))
    values = np.array([1, 200], dtype)
    module.load_state_dict(
        {"weight": values} if dtype == "float16" else {"count": values, "weight": values}, strict=False
    )
    assert module.weight.tolist() == [1, 200]
    assert module.count.tolist() == ([0, 0] if dtype == "float16" else [1, 200])
    with pytest.raises(TypeError, match=r"^\[load_state_dict\] weight: .*complex64"):
        module.load_state_dict({"weight": np.ones(2, np.complex64)}, strict=False)


@pytest.mark.parametrize("make", [
    lambda n, device: nn.BatchNorm1d(n, device=device), lambda n, device: nn.SyncBatchNorm(n, device=device),
    lambda n, device: nn.InstanceNorm1d(n, track_running_stats=True, device=device),
], ids=["batch", "sync", "instance"])  # fmt: skip
def test_a_batch_norm_without_the_count(make, device):
    """As in PyTorch, the count stays."""
    model = nn.Sequential(make(3, device))
    model[0].num_batches_tracked.fill_(5)
    state = {name: mg.full(x.shape, 2.0) for name, x in model.state_dict().items() if "num" not in name}
    assert model.load_state_dict(state) == model.load_state_dict(state, strict=False) == ([], [])
    assert model[0].num_batches_tracked.item() == 5
    assert model[0].running_var.tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match=r"missing: 0.running_mean; 0.running_var$"):
        nn.Sequential(nn.BatchNorm1d(3, affine=False)).load_state_dict({})


def test_recurrent_statistics_without_their_counts():
    norm = nn.RecurrentBatchNorm1d(3, 4)
    state = norm.state_dict()
    del state["num_batches_tracked"]
    raises(ValueError, "missing: num_batches_tracked", norm.load_state_dict, state)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.again = self.head


def test_one_name_of_a_shared_parameter_is_enough():
    model = Tied()
    for name in ("embedding.weight", "head.weight", "again.weight"):
        values = mg.random.normal(0.0, 1.0, (5, 4))
        assert model.load_state_dict({name: values}) == ([], [])
        assert model.head.weight.tolist() == values.tolist()
    assert model.load_state_dict({}, strict=False).missing_keys == ["embedding.weight", "head.weight", "again.weight"]


def test_a_tied_file_of_torch(tmp_path):
    from safetensors.torch import load_file, save_model

    theirs = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(5, 4), "head": torch.nn.Linear(4, 5, bias=False)})
    theirs["head"].weight = theirs["embedding"].weight
    theirs["again"] = theirs["head"]
    save_model(theirs, str(tmp_path / "x"))
    ours = Tied()
    ours.load_state_dict(mg.load(tmp_path / "x"))
    assert ours.embedding.weight.tolist() == theirs["embedding"].weight.tolist()
    mg.save(ours, tmp_path / "y")
    theirs.load_state_dict(load_file(tmp_path / "y"))


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("layer, size, options", [
    ("Linear", (3, 2), {}), ("Conv1d", (3, 4, 2), {}), ("ConvTranspose2d", (3, 4, 2), {}), ("Linear", (3, 2), {"dim": 1}),
])  # fmt: skip
def test_torchs_names_of_computed_weights(kind, layer, size, options):
    make = getattr(torch.nn.utils.parametrizations, kind)
    theirs = torch.nn.Sequential(make(getattr(torch.nn, layer)(*size), **options)).eval()
    ours = nn.Sequential(getattr(nn.utils, kind)(getattr(nn, layer)(*size), **options)).eval()
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    x = np.random.default_rng(0).standard_normal((5, 3, 7, 6)[: len(ours[0].weight.shape)]).astype("float32")
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x))
    np.testing.assert_allclose(ours(mg.tensor(x)).detach().numpy(), expected, atol=1e-6)
    names = {"_g": "original0", "_v": "original1"}
    if kind == "spectral_norm":
        names = {"_orig": "original", "_u": "0._u", "_v": "0._v"}
    names = {f"0.weight{ours}": f"0.parametrizations.weight.{theirs}" for ours, theirs in names.items()}
    back = {names.get(name, name): torch.from_numpy(x.numpy()) for name, x in ours.state_dict().items()}
    theirs.load_state_dict(back)
    both = {**theirs.state_dict(), **ours.state_dict()}
    raises(ValueError, r"unexpected: 0\.parametrizations", ours.load_state_dict, both)


@pytest.mark.parametrize("layer, shape, message", [
    (nn.Linear(3, 2, bias=False), (3, 2), r"expected \(2, 3\), got \(3, 2\): transposed, \.T fits"),
    (nn.Conv2d(3, 2, (4, 5), bias=False), (4, 5, 3, 2), r"got \(4, 5, 3, 2\): transposed, \.transpose\(3, 2, 0, 1\) fits"),
    (nn.Linear(3, 2, bias=False), (2, 4), r"got \(2, 4\)"),
])  # fmt: skip
def test_transposed_kernels_are_named(layer, shape, message):
    values = np.zeros(shape)
    raises(ValueError, f"{message}$", layer.load_state_dict, {"weight": values})
    if "transpose" in message:
        axes = (1, 0) if values.ndim == 2 else (3, 2, 0, 1)
        layer.load_state_dict({"weight": values.transpose(axes)})


def test_a_state_within_another_is_found(tmp_path):
    """As PyTorch's DataParallel names one, and as a checkpoint holds it."""
    model, path = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), tmp_path / "run.safetensors"
    optimizer = optim.SGD(model.parameters(), 0.1)
    mg.save_checkpoint(path, net=model, optimizer=optimizer)
    for prefix, state in [
        ("module.", {f"module.{name}": value for name, value in model.state_dict().items()}),
        ("a.b.", {f"a.b.{name}": value for name, value in model.state_dict().items()}),
        ("net.", mg.load(path)),
    ]:
        with pytest.raises(ValueError, match="missing") as error:
            model.load_state_dict(state)
        hint = str(error.value).splitlines()[-1]
        assert hint.startswith(f"  its names begin with {prefix!r}: load {{k[")
        model.load_state_dict(eval(hint.partition("load ")[2].partition(", or mg.")[0], {"state": state}))
        assert ("mg.load_checkpoint(path, net=model)" in hint) == (prefix == "net.")
    with pytest.raises(ValueError, match="missing") as error:
        model.load_state_dict({"net.0.weight": model[0].weight})
    assert "begin with" not in str(error.value)
