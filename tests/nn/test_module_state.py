"""state_dict, load_state_dict, copies and pickles of modules."""

import copy
import math
import pickle

import numpy as np
import pytest
from checks import array, raises, refuses, tensor
from nets import Net

import minigrad as mg
from minigrad import nn


def test_state_dict_holds_parameters_and_persistent_buffers_and_shares_memory(device):
    net = Net().to(device)
    state = net.state_dict()
    assert list(state) == ["last", "first.weight", "first.bias", "block.0.gain", "block.0.mean", "block.2.0.weight",
                           "block.2.0.bias"]  # fmt: skip
    assert not any(value.requires_grad for value in state.values())
    state["last"][0, 0] = 7
    assert net.last.tolist()[0][0] == 7.0
    assert next(iter(net.state_dict(prefix="net"))) == "net.last"


def test_load_state_dict(device):
    a, b = Net().to(device), Net().to(device)
    weight, there = b.first.weight, Net()
    result = b.load_state_dict(a.state_dict())
    assert result == ([], [])
    assert result.missing_keys == []
    assert b.first.weight is weight
    for name, value in b.state_dict().items():
        assert value.tolist() == a.state_dict()[name].tolist()
        assert value.device == device
    assert there.load_state_dict(a.state_dict()) == (
        [],
        [],
    )  # values are copied to the device of the module and stay there
    assert b.load_state_dict(there.state_dict()) == ([], [])
    for name, value in b.state_dict().items():
        assert value.tolist() == there.state_dict()[name].tolist() == a.state_dict()[name].tolist()
        assert (value.device, there.state_dict()[name].device) == (device, "cpu")
    a.first.bias.detach().fill_(9)
    assert b.first.bias.tolist() != [9.0] * 4


def test_load_state_dict_takes_numpy_and_converts_dtypes(device):
    layer = nn.Linear(2, 1, device=device)
    layer.load_state_dict({"weight": np.array([[1.0, 2.0]]), "bias": np.array([3], dtype=np.int64)})
    assert (layer.weight.dtype, layer.weight.device) == (mg.float32, device)
    assert (layer.weight.tolist(), layer.bias.tolist()) == ([[1.0, 2.0]], [3.0])


def test_load_state_dict_lists_all_faults_and_writes_nothing(device):
    layer = nn.Linear(2, 3, device=device)
    before = layer.weight.tolist()
    wrong = {"weight": mg.zeros((3, 2)), "bias": mg.zeros(2), "w": mg.zeros(1), "v": mg.zeros(1)}
    del wrong["weight"]
    with pytest.raises(ValueError, match=r"\[Linear\]") as caught:
        layer.load_state_dict(wrong)
    assert str(caught.value).splitlines()[1:] == [
        "  missing: weight", "  unexpected: w; v", "  other shape: bias, expected (3,), got (2,)",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="other shape: bias") as caught:
        layer.load_state_dict({"weight": mg.zeros((3, 2)), "bias": mg.zeros(2)}, strict=False)
    assert layer.weight.tolist() == before
    result = layer.load_state_dict({"weight": mg.zeros((3, 2), device=device), "w": mg.zeros(1)}, strict=False)
    assert result == (["bias"], ["w"])
    assert layer.weight.tolist() == np.zeros((3, 2)).tolist()
    with pytest.raises(TypeError, match=r"\[load_state_dict\] bias"):
        layer.load_state_dict({"weight": mg.zeros((3, 2), device=device), "bias": "three"})


def test_load_state_dict_of_floats_for_integers_writes_nothing(device):
    norm = nn.BatchNorm1d(2, device=device)
    count = mg.tensor(2.5, device=device)
    wrong = {**{name: x * 0 + 7 for name, x in norm.state_dict().items()}, "num_batches_tracked": count}
    for strict in (True, False):
        with pytest.raises(ValueError, match="other dtype: num_batches_tracked, expected int64, got float32"):
            norm.load_state_dict(wrong, strict)
    assert norm.weight.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"unexpected: w; \(1, 2\)"):
        norm.load_state_dict({**norm.state_dict(), "w": mg.ones(1, device=device), (1, 2): mg.ones(1, device=device)})


class Buffers(nn.Module):
    """One buffer of each dtype."""

    def __init__(self, device):
        super().__init__()
        for dtype in ("int32", "int64", "bool", "float32"):
            self.register_buffer(f"as_{dtype}", mg.zeros(3, dtype=dtype, device=device))


@pytest.mark.parametrize("name, values", [
    ("int32", [1, 2**40, 3]), ("int32", [0, 0, 2**31]), ("int32", [-(2**31) - 1, 0, 0]), ("int32", [2**63 - 1, 0, 0]), ("int32", [1.0, 2.0, 3.0]),
    ("int32", [0.5, 0.0, 0.0]), ("int64", [math.nan, 0.0, 0.0]), ("int64", [math.inf, 0.0, 0.0]), ("bool", [0, 1, 2]), ("bool", [-1, 0, 0]), ("bool", [0.0, 1.0, 1.0]),
])  # fmt: skip
@pytest.mark.parametrize("strict", [True, False])
def test_load_state_dict_of_values_that_do_not_fit_writes_nothing(device, name, values, strict):
    module = Buffers(device)
    state = {key: mg.ones(3, dtype=value.dtype, device=device) for key, value in module.state_dict().items()}
    state[f"as_{name}"] = mg.tensor(values, device=device)
    match = rf"^\[Buffers\] this state_dict does not fit:\n  other (dtype|values): as_{name}, expected {name}, got"
    raises(ValueError, match, module.load_state_dict, state, strict)
    assert {value.any().item() for value in module.state_dict().values()} == {False}


def test_load_state_dict_of_values_that_fit(device):
    module = Buffers(device)
    limits = [-(2**31), 2**31 - 1, 0]
    module.load_state_dict({
        "as_int32": mg.tensor(limits, device=device), "as_int64": mg.tensor([True, False, True], device=device),
        "as_bool": mg.tensor([0, 1, 1], device=device), "as_float32": np.array([1e300, 0.1, 2.0]),
    })  # fmt: skip
    assert module.as_int32.tolist() == limits
    assert module.as_int64.tolist() == [1, 0, 1]
    assert module.as_bool.tolist() == [False, True, True]
    assert module.as_float32.tolist() == [math.inf, float(np.float32(0.1)), 2.0]  # as PyTorch rounds


def test_load_state_dict_writes_nothing_where_it_cannot_write_everything(device):
    """The elements of the buffer share memory; nothing is copied to entries before it."""
    module = nn.Module()
    module.register_buffer("a", mg.zeros(3, device=device))
    module.register_buffer("b", mg.broadcast_to(mg.zeros(1, device=device), (3,)))
    raises(ValueError, "share memory", module.load_state_dict, {"a": mg.ones(3), "b": mg.ones(3)})
    assert module.a.tolist() == [0.0, 0.0, 0.0]


def test_load_state_dict_of_its_own_values_in_another_order(device):
    layers = nn.ModuleList([nn.Linear(2, 2, bias=False, device=device) for _ in range(3)])
    before = {name: value.tolist() for name, value in layers.state_dict().items()}
    state = layers.state_dict()
    first, second, third = state
    layers.load_state_dict({first: state[third], second: state[first], third: state[second].T})
    after = {name: value.tolist() for name, value in layers.state_dict().items()}
    transposed = [list(row) for row in zip(*before[second], strict=True)]
    assert after == {first: before[third], second: before[first], third: transposed}


@pytest.mark.parametrize("of", [lambda x: x, lambda x: x.numpy() if x.device == "cpu" else x])
def test_load_state_dict_of_views_that_overlap(device, of):
    base = mg.arange(6.0, device=device)
    module = nn.Module()
    module.register_buffer("a", base[0:3])
    module.register_buffer("b", base[3:6])
    module.load_state_dict({"b": of(base[2:5]), "a": of(base[3:0:-1])})
    assert module.b.tolist() == [2.0, 3.0, 4.0]
    assert module.a.tolist() == [3.0, 2.0, 1.0]


def test_load_state_dict_takes_parameters_themselves(device):
    first, second = nn.Linear(2, 3, device=device), nn.Linear(2, 3, device=device)
    second.load_state_dict(dict(first.named_parameters()))
    assert second.weight.tolist() == first.weight.tolist()
    assert second.weight.is_leaf
    assert second.weight.device == device


def test_load_state_dict_bumps_the_version(device):
    """A value saved for backward must not change unnoticed."""
    layer = nn.Linear(2, 2, device=device)
    x = mg.ones((1, 2), requires_grad=True, device=device)
    loss = layer(x).sum()
    layer.load_state_dict(nn.Linear(2, 2, device=device).state_dict())
    raises(mg.GradientError, "in place", loss.backward)


def test_state_dict_round_trip_through_torch(device):
    torch = pytest.importorskip("torch")
    ours = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh(), nn.Sequential(nn.Linear(4, 3, bias=False)))
    ours.to(device)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(5, 4), torch.nn.LayerNorm(4), torch.nn.Tanh(),
        torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False)),
    )  # fmt: skip
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict({name: torch.from_numpy(array(value).copy()) for name, value in ours.state_dict().items()})
    x = np.random.default_rng(0).standard_normal((6, 5), dtype=np.float32)
    x, theirs_x = tensor(x, device), torch.from_numpy(x)
    np.testing.assert_allclose(ours(x).tolist(), theirs(theirs_x).tolist(), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter))
    ours.load_state_dict(theirs.state_dict())
    np.testing.assert_allclose(ours(x).tolist(), theirs(theirs_x).tolist(), rtol=1e-5, atol=1e-6)


def test_deepcopy_and_pickle(device):
    net = Net().to(device)
    x = mg.ones((5, 3), device=device)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert repr(other) == repr(net)
        assert other(x).tolist() == net(x).tolist()
        assert isinstance(other.last, nn.Parameter)
        assert {x.device for x in (*other.parameters(), *other.buffers())} == {device}
        assert other.last.requires_grad
        assert other.last is not net.last
        nn.init.ones_(other.last)
    assert net.last.tolist() == np.zeros((2, 4)).tolist()


def test_a_buffer_is_registered_when_it_is_assigned(device):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = nn.Buffer(mg.zeros(2, dtype="int64", device=device))
            self.scratch = nn.Buffer(mg.ones(3, device=device), persistent=False)

        def forward(self, x):
            self.count = self.count + 1
            return x

    module = Counter()
    for made in (module, copy.deepcopy(module)):
        assert list(made.state_dict()) == ["count"]
        assert [name for name, _ in made.named_buffers()] == ["count", "scratch"]
        assert list(made.parameters()) == []
    module(mg.ones(1))
    assert module.state_dict()["count"].tolist() == [1, 1]
    module.scratch = copy.deepcopy(module.scratch)
    assert list(module.state_dict()) == ["count"]
    module.scratch = nn.Buffer(mg.ones(2, device=device))
    assert list(module.state_dict()) == ["count", "scratch"]
    module.load_state_dict({"count": np.array([5, 6]), "scratch": np.zeros(2)})
    assert module.count.tolist() == [5, 6]
    shared = mg.zeros(2, device=device)
    nn.Buffer(shared)[0] = 1
    assert shared.tolist() == [1, 0]
    loaded = pickle.loads(pickle.dumps(nn.Buffer(shared, persistent=False)))
    assert (loaded.tolist(), loaded.persistent, isinstance(loaded, nn.Buffer)) == ([1, 0], False, True)
    refuses(TypeError, "Buffer", "list", nn.Buffer, [1.0])
    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        object.__new__(nn.Module).x = nn.Buffer(shared)
