"""Module: registration, traversal, modes, state, hooks, text."""

import numpy as np
import pytest
from checks import raises, refuses
from nets import Net, Scale

import minigrad as mg
from minigrad import nn, optim


def names(pairs):
    return [name for name, _ in pairs]


# ── registration ──


def test_parameters_in_order_of_assignment_own_before_children():
    assert names(Net().named_parameters()) == [
        "last", "first.weight", "first.bias", "block.0.gain", "block.2.0.weight", "block.2.0.bias",
    ]  # fmt: skip
    assert names(Net().named_parameters(prefix="net")) == [f"net.{name}" for name in names(Net().named_parameters())]
    assert names(Net().named_parameters(recurse=False)) == ["last"]


def test_modules_children_buffers():
    net = Net()
    assert names(net.named_modules()) == ["", "first", "block", "block.0", "block.1", "block.2", "block.2.0"]
    assert names(net.named_children()) == ["first", "block"]
    assert next(net.modules()) is net
    assert list(net.children()) == [net.first, net.block]
    assert names(net.named_buffers()) == ["block.0.mean", "block.0.scratch"]
    assert names(net.block[0].named_buffers(recurse=False)) == ["mean", "scratch"]
    assert len(list(net.buffers())) == 2


def test_shared_parameters_and_modules_are_listed_once_but_saved_under_each_name(device):
    net = nn.Module()
    net.a = nn.Linear(2, 2, device=device)
    net.b = net.a
    net.c = nn.Linear(2, 2, device=device)
    net.c.weight = net.a.weight
    assert names(net.named_modules()) == ["", "a", "c"]
    assert names(net.named_parameters()) == ["a.weight", "a.bias", "c.bias"]
    assert list(net.state_dict()) == ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"]


def test_attributes_are_plain_instance_attributes():
    """Parameters are in `__dict__`, so self.weight costs no more than any attribute."""
    layer = nn.Linear(2, 3)
    assert layer.__dict__["weight"] is layer.weight
    assert not hasattr(nn.Module, "__getattr__")


def test_reassignment_keeps_the_place_and_changes_the_object():
    layer = nn.Linear(2, 3)
    new = nn.Parameter(mg.zeros((3, 2)))
    layer.weight = new
    assert layer.weight is new
    assert names(layer.named_parameters()) == ["weight", "bias"]
    layer.bias = None
    assert names(layer.named_parameters()) == ["weight"]
    assert list(layer.state_dict()) == ["weight"]
    layer.bias = nn.Parameter(mg.zeros(3))
    assert names(layer.named_parameters()) == ["weight", "bias"]


def test_a_name_changes_its_registry():
    module = nn.Module()
    module.x = nn.Parameter(mg.zeros(1))
    module.x = nn.ReLU()
    assert names(module.named_parameters()) == []
    assert names(module.named_children()) == ["x"]
    del module.x
    assert names(module.named_children()) == []
    assert not hasattr(module, "x")
    module.x = 3
    assert module.x == 3


def test_plain_attribute_becomes_parameter():
    module = nn.Module()
    module.x = None
    module.x = nn.Parameter(mg.zeros(1))
    assert names(module.named_parameters()) == ["x"]


@pytest.mark.parametrize("value", [nn.Parameter(mg.zeros(1)), nn.ReLU()])
def test_assignment_before_init(value):
    class Forgetful(nn.Module):
        def __init__(self):
            self.part = value

    refuses(AttributeError, "Forgetful", "call super().__init__() before assigning 'part'", Forgetful)


def test_plain_attribute_before_init_is_fine():
    class Early(nn.Module):
        def __init__(self):
            self.size = 3
            super().__init__()
            self.gain = nn.Parameter(mg.zeros(self.size))

    assert names(Early().named_parameters()) == ["gain"]


def test_wrong_kind_for_a_registered_name():
    layer = nn.Linear(2, 3)
    with pytest.raises(TypeError, match=r"\[Linear\] expected a Parameter or None for 'weight', got Tensor"):
        layer.weight = mg.zeros((3, 2))
    with pytest.raises(TypeError, match=r"expected a Module or None for 'first', got int"):
        Net().first = 3
    with pytest.raises(TypeError, match=r"expected a Tensor or None for 'mean', got list"):
        Scale(2).mean = [1.0]
    scale = Scale(2)
    scale.mean = mg.ones(2)
    assert scale.state_dict()["mean"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["", "a.b"])
def test_bad_names(name):
    module = nn.Module()
    for register in (module.register_buffer, module.register_parameter, module.register_module):
        raises(ValueError, "nonempty name without dots", register, name, None)


def test_register_refuses_taken_names_and_wrong_types():
    module = nn.Linear(2, 2)
    for register in (module.register_buffer, module.register_parameter, module.register_module):
        raises(ValueError, "'forward', which already exists", register, "forward", None)
        raises(TypeError, "expected a", register, "x", [1.0])
    raises(TypeError, "name of type str", module.register_parameter, 3, None)
    raises(TypeError, "not a Parameter", module.register_buffer, "x", nn.Parameter(mg.zeros(1)))


KINDS = {
    "register_parameter": lambda: nn.Parameter(mg.ones(3)), "register_buffer": lambda: mg.ones(3),
    "register_module": nn.ReLU,
}  # fmt: skip


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_registering_replaces_its_own_kind_only(first, second, absent):
    """A name registered as another kind is kept, even if it is None, as in PyTorch."""
    module = nn.Module()
    there, new = None if absent else KINDS[first](), KINDS[second]()
    getattr(module, first)("x", there)
    if first == second:
        getattr(module, second)("x", new)
        assert module.x is new
        return
    before = [list(registry) for registry in (module._parameters, module._buffers, module._modules)]
    refuses(ValueError, "Module", "'x', which already exists", lambda: getattr(module, second)("x", new))
    assert module.x is there
    assert before == [list(registry) for registry in (module._parameters, module._buffers, module._modules)]
    del module.x
    getattr(module, second)("x", new)
    assert module.x is new


def test_a_weight_is_not_lost_to_a_buffer(device):
    layer = nn.Linear(2, 2, device=device)
    weight = layer.weight
    parts = "'weight', which already exists"
    refuses(ValueError, "Linear", parts, lambda: layer.register_buffer("weight", mg.zeros(1)))
    refuses(ValueError, "Linear", "'bias', which already exists", lambda: layer.register_module("bias", nn.ReLU()))
    assert layer.weight is weight
    assert names(layer.named_parameters()) == ["weight", "bias"]
    refuses(TypeError, "Linear", "'weight', got type", lambda: setattr(layer, "weight", nn.Linear))
    block = nn.Module()
    block.part = layer
    refuses(TypeError, "Module", "'part', got type", lambda: setattr(block, "part", nn.Linear))
    refuses(ValueError, "Module", "'part', which already exists", lambda: block.register_buffer("part", mg.zeros(1)))
    assert block.part is layer


def test_parameter(device):
    data = mg.zeros(3, device=device)
    parameter = nn.Parameter(data)
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert isinstance(parameter, mg.Tensor)
    assert parameter.device == device
    assert parameter.data_ptr() == data.data_ptr()
    assert repr(parameter).startswith("Parameter containing:\ntensor([0., 0., 0.]")
    data[0] = 5
    assert parameter.tolist() == [5.0, 0.0, 0.0]
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert type(parameter * 2) is mg.Tensor
    raises(TypeError, r"\[Parameter\]", nn.Parameter, [1.0])
    raises(TypeError, r"\[Parameter\]", nn.Parameter, mg.arange(3, device=device))
    assert not nn.Parameter(mg.arange(3, device=device), requires_grad=False).requires_grad


def test_parameter_of_a_computed_tensor_is_a_leaf(device):
    x = mg.ones(2, requires_grad=True, device=device)
    parameter = nn.Parameter(x * 2)
    (parameter * 3).sum().backward()
    assert parameter.grad.tolist() == [3.0, 3.0]
    assert x.grad is None


# ── calls and hooks ──


def test_call_passes_arguments(device):
    scale = Scale(2).to(device)
    assert scale(mg.ones(2, device=device), shift=1.0).tolist() == [2.0, 2.0]
    assert scale(mg.ones(2, device=device), 2.0).tolist() == [3.0, 3.0]


def test_forward_missing():
    refuses(NotImplementedError, "Module", "forward", nn.Module(), 1)


def test_hooks_see_and_replace(device):
    scale = Scale(2).to(device)
    seen = []
    before = scale.register_forward_pre_hook(lambda module, args: seen.append((module, args)) or (args[0] * 2,))
    single = scale.register_forward_pre_hook(lambda module, args: args[0] + 1)
    after = scale.register_forward_hook(lambda module, args, output: output * 10)
    x = mg.ones(2, device=device)
    assert scale(x, shift=1.0).tolist() == [40.0, 40.0]
    assert seen[0][0] is scale
    assert seen[0][1][0] is x
    before.remove()
    assert scale(x).tolist() == [20.0, 20.0]
    single.remove()
    after.remove()
    after.remove()
    assert scale(x).tolist() == [1.0, 1.0]
    assert scale._hooks is None
    assert len(seen) == 1


def test_a_hook_may_remove_itself(device):
    module = nn.ReLU()
    handle = module.register_forward_hook(lambda *_: handle.remove())
    module(mg.ones(1, device=device))
    assert module._hooks is None


# ── modes ──


def test_train_and_eval():
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())


def test_requires_grad_and_zero_grad(device):
    net = Net().to(device)
    net.first.requires_grad_(False)
    net(mg.ones((5, 3), device=device)).sum().backward()
    assert net.first.weight.grad is None
    assert net.last.grad is not None
    net.zero_grad(set_to_none=False)
    assert net.last.grad.tolist() == np.zeros((2, 4)).tolist()
    net.zero_grad()
    assert net.last.grad is None


def test_apply_visits_children_first():
    seen = []
    net = Net()
    assert net.apply(lambda module: seen.append(module)) is net
    assert seen[-1] is net
    assert seen.index(net.block[2][0]) < seen.index(net.block[2]) < seen.index(net.block)
    assert len(seen) == 7
    names = []
    nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU(), nn.Tanh()), nn.GELU()).apply(
        lambda module: names.append(type(module).__name__)
    )
    assert names == ["Linear", "ReLU", "Tanh", "Sequential", "GELU", "Sequential"]


# ── dtype ──


def test_to_dtype_keeps_identity_and_an_earlier_optimizer_valid(device):
    net = Scale(2).to(device)
    net.register_buffer("count", mg.zeros(1, dtype=mg.int64, device=device))
    gain, mean = net.gain, net.mean
    optimizer = optim.Adam(net.parameters(), lr=0.5)
    net(mg.ones(2, device=device)).sum().backward()
    optimizer.step()
    assert net.to(mg.float64) is net
    assert net.gain is gain
    assert net.mean is mean
    assert (gain.dtype, mean.dtype, net.count.dtype) == (mg.float64, mg.float64, mg.int64)
    assert gain.requires_grad
    assert gain.is_leaf
    assert gain.device == mean.device == net.count.device == device
    assert gain.grad is None or gain.grad.dtype == mg.float64
    np.testing.assert_allclose(gain.tolist(), [0.5, 0.5], rtol=1e-5)
    optimizer.zero_grad()
    out = net(mg.ones(2, dtype=mg.float64, device=device))
    assert out.dtype == mg.float64
    out.sum().backward()
    optimizer.step()
    np.testing.assert_allclose(gain.tolist(), [0.0, 0.0], atol=1e-5)
    assert optimizer.state[gain]["exp_avg"].dtype == mg.float64
    assert optimizer.state[gain]["exp_avg"].device == device
    assert optimizer.state[gain]["step"] == 2


def test_to_between_forward_and_backward(device):
    layer = nn.Linear(2, 1, device=device)
    loss = layer(mg.ones((1, 2), device=device)).sum()
    layer.to(device).to("float32")  # changes nothing
    loss.backward()
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]
    loss = layer(mg.ones((1, 2), device=device)).sum()
    layer.to("float64")
    raises(mg.GradientError, "became another tensor", loss.backward)
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]


def test_to_keeps_shared_parameters_shared(device):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net.to(device)
    assert net[1].weight is net[0].weight
    assert net[0].weight.device == device
    net.to("float64")
    assert net[1].weight is net[0].weight
    assert (net[0].weight.dtype, net[0].weight.device) == ("float64", device)


def test_to_errors(device):
    net = nn.Linear(2, 2, device=device)
    for wrong in (mg.int64, "tpu"):
        refuses(TypeError, "Linear.to", ["expected a device", f"or a dtype of floats, got {wrong!r}"], net.to, wrong)
    assert net.to(device).weight.dtype == mg.float32
    assert net.weight.device == device


# ── errors ──


def notes(f, *args, kind=ValueError):
    with pytest.raises(kind) as caught:
        f(*args)
    assert type(caught.value) is kind
    return getattr(caught.value, "__notes__", [])


def test_an_error_says_in_which_module():
    """One line, whatever the depth: the path from the outermost module and the options of the innermost."""
    linear = "Linear(in_features=16, out_features=10, bias=True)"
    model = nn.Sequential(nn.Linear(3, 15), nn.ReLU(), nn.Linear(16, 10))
    x = mg.ones((2, 3))
    assert notes(model, x) == [f"in Sequential.2: {linear}"]
    assert notes(nn.Sequential(nn.Sequential(nn.Tanh(), model)), x) == [f"in Sequential.0.1.2: {linear}"]
    assert notes(nn.Linear(16, 10), x) == [f"in {linear}"]

    class Block(nn.Module):
        def __init__(self, *layers, hidden=()):
            super().__init__()
            self.layers, self.hidden = nn.ModuleList(layers), hidden

        def forward(self, x):
            for layer in (*self.layers, *self.hidden):
                x = layer(x)
            return x.reshape(7)

    assert notes(Block(nn.Tanh(), model), x) == [f"in Block.layers.1.2: {linear}"]  # through a list that is not called
    assert notes(Block(hidden=[model]), x) == [f"in Block.Sequential.2: {linear}"]  # not registered
    assert notes(nn.Sequential(Block(nn.Tanh())), x) == ["in Sequential.0: Block"]  # in the block's own code
    handle = model[0].register_forward_hook(lambda *_: 1 / 0)
    assert notes(model, x, kind=ZeroDivisionError) == [
        "in Sequential.0: Linear(in_features=3, out_features=15, bias=True)"
    ]
    handle.remove()

    class Caught(Block):
        def forward(self, x):
            assert notes(super().forward, x) == []  # the outermost call has not ended
            return x

    assert Caught(model)(x) is x


def test_a_broken_module_keeps_its_error():
    class Broken(nn.Module):
        def __init__(self):
            pass

        def forward(self, x):
            raise KeyError("mine")

        def extra_repr(self):
            raise RuntimeError

    assert notes(Broken(), 1, kind=KeyError) == []
    assert notes(nn.Sequential(type("Dumb", (Broken,), {"__init__": nn.Module.__init__})()), 1, kind=KeyError) == []


# ── text ──


def test_repr():
    assert repr(nn.Linear(3, 4)) == "Linear(in_features=3, out_features=4, bias=True)"
    assert repr(Net()) == (
        "Net(\n"
        "  (first): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (block): Sequential(\n"
        "    (0): Scale()\n"
        "    (1): ReLU()\n"
        "    (2): Sequential(\n"
        "      (0): Linear(in_features=4, out_features=4, bias=True)\n"
        "    )\n"
        "  )\n"
        ")"
    )
    assert repr(nn.RNN(3, 4, norm="layer")) == ("RNN(\n  3, 4, norm='layer'\n  (ln_l0): GateNorm((4,), eps=1e-05)\n)")


def test_repr_is_pytorchs():
    torch = pytest.importorskip("torch")

    def build(nn, softmax):
        return nn.Sequential(
            nn.Linear(3, 4, bias=False), nn.LayerNorm((2, 4), eps=1e-3), nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.2)),
            nn.ELU(alpha=2.0), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Hardsigmoid(),
            nn.PReLU(3), nn.Mish(), nn.SELU(), nn.Hardswish(), nn.LogSigmoid(), nn.GELU(approximate="tanh"),
        )  # fmt: skip

    assert repr(build(nn, "axis")) == repr(build(torch.nn, "dim"))


@pytest.mark.parametrize("state", [None, "weights.safetensors", ({}, {})])
def test_a_state_dict_that_is_none(state):
    refuses(TypeError, "Linear", type(state).__name__, nn.Linear(2, 1).load_state_dict, state)


def test_a_module_cannot_contain_itself():
    outer = nn.Sequential(nn.Sequential(nn.ReLU()))
    for add in (
        lambda: outer.append(outer), lambda: outer[0].append(outer), lambda: setattr(outer[0], "parent", outer),
        lambda: outer.register_module("self", outer), lambda: outer[0].insert(0, outer),
    ):  # fmt: skip
        refuses(ValueError, "Sequential", "expected a module that does not contain this one", add)
    assert [type(module) for module in outer[0]] == [nn.ReLU]
    outer.append(outer[0])  # using a module twice does not nest it
