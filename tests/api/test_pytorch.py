"""PyTorch's spellings work with PyTorch's result and gradients, or their errors say what to write instead."""

import copy
import importlib
import inspect
import json
import math
import pickle
import pydoc
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from checks import allocated, raises
from expressions import POINTS, WORKS, expressions, space
from peers import torch

import minigrad as mg
from minigrad import data, nn, optim, pytorch
from minigrad.engine.tensor.tensor import Extension
from minigrad.nn import functional as F
from minigrad.nn.module import METHODS
from minigrad.pytorch.hints import FOREIGN, MODELS


def same(ours, theirs):
    """Assert that two results are equal."""
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            same(*pair)
    elif isinstance(theirs, torch.Tensor):
        assert ours.shape == tuple(theirs.shape)
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_allclose(ours.detach().to("cpu").numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-6)
    else:
        assert ours == theirs


@pytest.mark.parametrize("expression", expressions(WORKS))
def test_works(expression, device):
    if device != "cpu" and any(word in expression for word in (".cpu()", "device(", '"cpu"')):
        device = "cpu"
    found = []
    for library in (mg, torch):
        names = space(library, device if library is mg else "cpu")
        value = eval(expression, names)
        leaves = [names[name] for name in "abxmvwp"]
        values = value if isinstance(value, (tuple, list)) else [value]
        outputs = [y for y in values if getattr(y, "requires_grad", False) and not y.is_leaf]
        if outputs:
            total = sum(
                (y * library.cos(library.arange(y.numel(), device=y.device).reshape(y.shape) * 1.0)).sum()
                for y in outputs
            )
            total.backward()
        grads = [(x.grad + 0).tolist() if x.grad is not None else None for x in leaves]
        found.append((value, grads))
    (ours, our_grads), (theirs, their_grads) = found
    same(ours, theirs)
    for g, h in zip(our_grads, their_grads, strict=True):
        assert (
            (g is None or not np.any(g)) if h is None else np.allclose(0 if g is None else g, h, rtol=1e-4, atol=1e-5)
        )


def test_works_without_pytorch():
    """The same expressions run with minigrad alone, which the quick set does in place of comparing."""
    for expression in expressions(WORKS):
        eval(expression, space(mg))


EXISTING = re.compile(r"`([^`]+)`")


def names_in(message):
    """The dotted names of minigrad in the code of a message."""
    found = []
    for code in EXISTING.findall(message):
        found += re.findall(r"\b(?:mg|x|nn|optim|data|minigrad)(?:\.[A-Za-z_]\w*)+", code)
    return found


def check_names(message):
    assert EXISTING.search(message) or re.search(r"\b(x|data|dataset)\.\w+\(|\w=|axis or dim|thread", message), message
    spaces = {"mg": mg, "x": mg.ones((2, 2)), "nn": nn, "optim": optim, "data": data, "minigrad": mg}
    for path in names_in(message):
        first, *rest = path.split(".")
        value = spaces[first]
        for name in rest:
            value = getattr(value, name)


@pytest.mark.parametrize("expression", expressions(POINTS))
def test_points(expression):
    with pytest.raises((AttributeError, TypeError)) as error:
        eval(expression, space(mg))
    message = str(error.value)
    assert re.match(r"\[\w+\] ", message), message
    check_names(message)


@pytest.mark.parametrize("module, name", [(m, n) for m, names in pytorch.POINTERS.items() for n in names])
def test_pointers_name_what_exists(module, name):
    check_names(pytorch.POINTERS[module][name])


@pytest.mark.parametrize("module, name", [(m, n) for m, names in FOREIGN.items() for n in names])
def test_names_of_other_libraries_are_answered(module, name):
    check_names(FOREIGN[module][name])
    with pytest.raises(AttributeError, match=re.escape(f"[{name}] {FOREIGN[module][name]}")):
        getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", MODELS)
def test_methods_of_keras_models_are_answered(name):
    check_names(MODELS[name].replace("`model.", "`nn.Module."))
    with pytest.raises(AttributeError, match=re.escape(f"[{name}] {MODELS[name]}")):
        getattr(nn.Linear(1, 1), name)
    network = type("Own", (nn.Module,), {name: lambda self: 3})()
    assert getattr(network, name)() == 3
    model = nn.Module()
    setattr(model, name, nn.Linear(1, 1))
    assert getattr(model, name).in_features == 1


def test_enough_expressions():
    everything = expressions(WORKS) + expressions(POINTS)
    assert len(everything) == len(set(everything)) >= 300


# ── what an expression does not show ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
def test_gradients_of_computed_tensors_are_kept(library):
    x = library.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    for _ in range(2):
        (y * y).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [12.0, 24.0]
    assert x.grad.tolist() == [36.0, 72.0]
    with pytest.raises(RuntimeError):
        library.ones(2).retain_grad()


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
def test_a_gradient_that_is_not_kept_is_announced(library):
    x = library.tensor([1.0, 2.0], requires_grad=True)
    kept, lost = x * 3, x * 2
    kept.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (x.grad, x.detach().grad, kept.grad) == (None, None, None)
    (kept * lost).sum().backward()
    with pytest.warns(UserWarning, match=r"retain_grad\(\)") as found:
        assert lost.grad is None
    assert (len(found), found[0].filename) == (1, __file__)
    assert library is torch or "with mg.no_grad(): p -= " in str(found[0].message)


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
def test_gradients_kept_are_those_of_the_last_write(library):
    w = library.tensor([1.0, 2.0], requires_grad=True)
    for write, expected in ((lambda a: a.mul_(2), [6, 6]), (lambda a: a.__setitem__(0, 5.0), [0, 3])):
        for whole in (lambda a: a, lambda a: a[:]):  # a view of a has its own history, and so has a
            a, w.grad = w * 1, None
            a.retain_grad()
            write(whole(a))
            (a * 3).sum().backward()
            assert (a.grad.tolist(), w.grad.tolist()) == ([3, 3], expected)


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
@pytest.mark.parametrize("parts", [1, 2])
def test_gradients_kept_are_those_that_all_hooks_return(library, parts):
    w = library.tensor([1.0, 2.0], requires_grad=True)
    a = [w * 1, *(w * 1).unbind()][-1 if parts == 2 else 0]
    a.retain_grad()
    a.register_hook(lambda g: g * 2)
    a.mul_(3) if parts == 1 else None
    a.register_hook(lambda g: g * 5)
    (a * a).sum().backward()
    assert (a.grad.tolist(), w.grad.tolist()) == (([30, 60], [180, 360]) if parts == 1 else (40, [0, 40]))


def test_gradients_kept_form_no_cycle():
    w = mg.ones(1000, requires_grad=True)
    before = allocated()
    a = w * 1
    a.retain_grad()
    loss = a.sum()
    del a, loss
    assert mg.memory_allocated() == before


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
def test_data_is_the_memory_without_history(library):
    p = library.ones(2, requires_grad=True)
    (p * 2).sum().backward()
    p.data -= 0.5 * p.grad.data
    assert p.tolist() == [0.0, 0.0]
    assert p.is_leaf
    assert p.requires_grad
    p.data.add_(1).mul_(3)
    p.data.clamp_(max=2)
    assert p.tolist() == [2.0, 2.0]
    assert not p.data.requires_grad
    p.data = library.zeros(3)
    assert p.shape == (3,)
    assert p.requires_grad
    with pytest.raises((RuntimeError, mg.GradientError)):
        p.add_(1)


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
def test_modes(library):
    x = library.ones(2, requires_grad=True)
    with library.set_grad_enabled(False):
        assert not (x * 2).requires_grad
        with library.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not library.is_grad_enabled()
    assert library.is_grad_enabled()
    library.set_grad_enabled(False)
    assert not library.is_grad_enabled()
    library.set_grad_enabled(True)

    @library.no_grad()
    def first():
        return x * 2

    @library.inference_mode()
    def second():
        return x * 2

    @library.inference_mode
    def third():
        return x * 2

    @library.enable_grad()
    def fourth():
        return x * 2

    with library.no_grad():
        assert fourth().requires_grad
    assert not any(f().requires_grad for f in (first, second, third))
    with library.inference_mode():
        assert not (x * 2).requires_grad


@pytest.mark.parametrize("call, error, says", [
    (lambda x: x.size(3), IndexError, "size"), (lambda x: x.size("first"), TypeError, "size"),
    (lambda x: nn.utils.rnn.pad_sequence([]), ValueError, "pad_sequence"),
    (lambda x: nn.utils.rnn.pad_sequence([x, [1.0]]), TypeError, "pad_sequence"),
    (lambda x: nn.utils.rnn.pad_sequence([x.sum()]), ValueError, "pad_sequence"),
    (lambda x: nn.utils.rnn.pad_sequence([x], padding_side="top"), ValueError, "pad_sequence"),
    (lambda x: mg.autograd.grad(x, x, only_inputs=False), TypeError, "grad"),
    (lambda x: F.interpolate(x, size=2**62), MemoryError, "interpolate"),
    (lambda x: F.interpolate(x, scale_factor=math.nan), ValueError, "interpolate"),
    (lambda x: F.interpolate(x, scale_factor=0.1), ValueError, "interpolate"),
    (lambda x: F.interpolate(x, size=(2, 2)), ValueError, "interpolate"),
    (lambda x: F.interpolate(x), ValueError, "interpolate"),
    (lambda x: F.interpolate(x, size=2, mode="bilinear"), ValueError, "interpolate"),
    (lambda x: F.interpolate(x, size=2, align_corners=True), ValueError, "interpolate"),
    (lambda x: F.interpolate(x, size=2, mode="cubic"), ValueError, "interpolate"),
    (lambda x: F.interpolate(x.long(), size=2), TypeError, "interpolate"),
    (lambda x: F.conv1d(x, x[0]), ValueError, "conv1d"),
    (lambda x: F.conv_transpose2d(x, x[None], padding=9), ValueError, "conv_transpose2d"),
    (lambda x: F.conv_transpose2d(x, x[None], output_padding=1), ValueError, "conv_transpose2d"),
    (lambda x: F.conv_transpose2d(x, x[None].double()), TypeError, "conv_transpose2d"),
    (lambda x: F.kl_div(x, x, "average"), ValueError, "kl_div"),
    (lambda x: F.huber_loss(x, x, delta=0), ValueError, "huber_loss"), (lambda x: F.pad(x, (1,)), ValueError, "pad"),
    (lambda x: F.pad(x, (1, 1), mode="edge"), ValueError, "pad"), (lambda x: nn.MSELoss(x, x), TypeError, "MSELoss"),
    (lambda x: nn.CrossEntropyLoss(x, x), TypeError, "CrossEntropyLoss"),
    (lambda x: nn.Embedding(3, 2, max_norm=1.0), TypeError, "Embedding"),
    (lambda x: nn.LSTM(3, 4, proj_size=2), TypeError, "LSTM"),
    (lambda x: nn.Linear(2, 2).load_state_dict({}, assign=True), TypeError, "Linear"),
    (lambda x: setattr(nn.Module(), "parameters", [x]), AttributeError, "Module"),
    (lambda x: setattr(nn.Module(), "children", nn.ReLU()), AttributeError, "Module"),
    (lambda x: F.pad(x, (3, 0), mode="reflect"), ValueError, "pad"), (lambda x: x.topk(9), ValueError, "topk"),
    (lambda x: x.chunk(0), ValueError, "chunk"),
    *[(lambda x, n=n: x.split_with_sizes(n, 2), ValueError, "split_with_sizes") for n in ([1, 1], [4, -1], [], 0)],
    (lambda x: x.type(), TypeError, "type"), (lambda x: x.t(), ValueError, "t"),
    (lambda x: x.gather(1, mg.tensor([0])), ValueError, "gather"), (lambda x: mg.mm(x, x), ValueError, "mm"),
    (lambda x: nn.Softmax(axis=0, dim=0), TypeError, "Softmax"),
    (lambda x: data.DataLoader([1], collate=sum, collate_fn=sum), TypeError, "DataLoader"),
    (lambda x: data.random_split([1, 2], [2, 1]), ValueError, "random_split"),
    (lambda x: nn.ModuleDict({"one": 3}), TypeError, "ModuleDict"),
])  # fmt: skip
def test_wrong_arguments(call, error, says):
    raises(error, rf"^\[{says}\]", call, mg.ones((1, 2, 3)))


@pytest.mark.parametrize("call", [
    lambda x: x.sum(inplace=True), lambda x: x.sum(axes=0), lambda x: x.cumsum(axes=0),
    lambda x: x.cumsum(dim=0, axis=0), lambda x: x.softmax(1, inplace=True), lambda x: F.gelu(x, inplace=True),
    lambda x: F.mse_loss(x, x, inplace=True), lambda x: F.mse_loss(x, input=x), lambda x: F.mse_loss(x, x, target=x),
    lambda x: F.mse_loss(target=x), lambda x: nn.MSELoss()(x, input=x), lambda x: nn.MSELoss()(x, x, target=x),
    lambda x: nn.MSELoss()(target=x), lambda x: mg.exp(x, inplace=True), lambda x: mg.tril(x, inplace=True),
    lambda x: mg.zeros(2, inplace=True), lambda x: nn.Linear(3, 2, inplace=True),
    lambda x: optim.SGD([x], lr=0.1, fast=True), lambda x: data.DataLoader([1], workers=2),
])  # fmt: skip
def test_unknown_keywords_are_refused(call):
    with pytest.raises(TypeError) as caught:
        call(mg.ones((2, 3), requires_grad=True))
    assert "Names" not in str(caught.value)


def test_size_is_an_int():
    size = mg.ones((2, 3)).size
    assert size == 6
    assert isinstance(size, int)
    assert (repr(size), f"{size:>3}", json.dumps([size])) == ("6", "  6", "[6]")
    assert [type(value) for value in (size + 0, copy.copy(size), pickle.loads(pickle.dumps(size)))] == [int] * 3
    assert mg.zeros(size).shape == np.zeros(size).shape == (6,)
    assert mg.tensor(1.0).size() == ()
    assert mg.ones((2, 3)).size(np.int64(1)) == 3


def test_imports():
    for line, says in {
        "from minigrad.utils.data import ConcatDataset": "cannot import name",
        "from minigrad.nn.utils.rnn import pack_padded_sequence": "cannot import name",
        "from minigrad import FloatTensor": "cannot import name",
        "from minigrad.nn import Nothing": "cannot import name",
    }.items():
        raises(ImportError, says, exec, line)
    names = {}
    exec("import minigrad.utils.data as first, minigrad.nn.utils.rnn as second\nfrom minigrad.utils import data", names)
    assert names["first"].DataLoader is data.DataLoader
    assert names["data"] is names["first"] is mg.utils.data
    assert names["second"] is nn.utils.rnn
    assert not hasattr(nn, "LazyLinear")


@pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])
def test_set_grad_enabled_decorates(library):
    x = library.ones(2, requires_grad=True)

    @library.set_grad_enabled(False)
    def without():
        return x * 2

    assert library.is_grad_enabled()
    assert not without().requires_grad

    @library.set_grad_enabled(mode=True)
    def recorded():
        return x * 2

    with library.no_grad():
        assert recorded().requires_grad
        assert not library.is_grad_enabled()
    assert library.is_grad_enabled()


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_random_numbers(p, device):
    mg.manual_seed(0)
    x = mg.full((100, 100), p, device=device).bernoulli()
    assert x.device == mg.zeros(1, device=device).device
    assert abs(x.mean().item() - p) < 0.02
    weights = mg.tensor([0.0, 1.0, 3.0], device=device)
    drawn = mg.multinomial(weights, 8000, replacement=True)
    assert abs((drawn == 2).sum().item() / 8000 - 0.75) < 0.02
    assert (drawn == 0).sum().item() == 0
    firsts = [mg.multinomial(weights, 2) for _ in range(400)]
    assert all(sorted(f.tolist()) == [1, 2] for f in firsts)
    assert abs(sum(f[0].item() == 2 for f in firsts) / 400 - 0.75) < 0.07
    raises(ValueError, "3 weights above 0", mg.multinomial, weights, 3)
    raises(ValueError, "from 0 to 1", mg.bernoulli, mg.tensor([1.5]))


SCRIPT = """
import copy, pickle, sys
import numpy as np
import minigrad as mg
x = mg.ones((2, 3), requires_grad=True)
np.asarray(x.detach()), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), repr(x), dir(x), dir(mg)
[hasattr(x, name) for name in ("__array_interface__", "_repr_png_", "__fspath__", "unknown")]
[hasattr(mg, name) for name in ("__path__", "__wrapped__", "_private")]
y = (x.sum(axis=1, keepdims=True) * 2).sum()
assert type(mg.Tensor.view).__name__ == "function" and "view" not in dir(x) and "cat" not in dir(mg)
"""


def test_names_are_functions_that_dir_leaves_out():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_aliases_are_marked_and_no_name_is_hidden():
    """A name of minigrad's own is never replaced, and what works under PyTorch's name says so."""
    aliases, functions = pytorch.METHODS, pytorch.FUNCTIONS["minigrad"]
    own = {name for kind in mg.Tensor.__mro__ if kind is not Extension for name in vars(kind)}
    assert not own & pytorch.MEMBERS.keys()
    assert {*aliases} | {*pytorch.POINTERS["Tensor"]} == pytorch.MEMBERS.keys() <= vars(Extension).keys()
    assert not {*aliases} & {*pytorch.POINTERS["Tensor"]}
    for value in (*aliases.values(), *functions.values()):
        assert value.__doc__.startswith("PyTorch's name for ")
    assert not {*pytorch.POINTERS["minigrad.nn.Module"]} & METHODS
    for module, names in pytorch.POINTERS.items():
        if module in ("minigrad.nn.Module", "minigrad.optim.Optimizer"):
            kind = pydoc.locate(module)
            assert all(isinstance(vars(kind)[name], pytorch.Pointer) for name in names)
        elif module not in ("Tensor", "minigrad.nn.utils.rnn"):
            place = importlib.import_module(module)
            for name in names:
                with pytest.raises((AttributeError, ImportError)):
                    getattr(place, name)
    assert not {*functions} & {*dir(mg)}


def test_a_subclass_calls_the_member_that_it_replaces():
    program = """
import minigrad as mg
from minigrad import nn

class Counted(nn.Parameter):
    calls = 0

    def add_(self, other):
        Counted.calls += 1
        return super().add_(other)

    @property
    def data(self):
        return super().data * 2

p = Counted(mg.ones(2))
with mg.no_grad():
    p.add_(1.0)
assert (p.tolist(), Counted.calls, p.data.tolist()) == ([2.0, 2.0], 1, [4.0, 4.0])
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_details_of_values(device):
    x = mg.tensor([16777217, -7], device=device)
    assert x.div(2, rounding_mode="trunc").tolist() == [8388608, -3]
    big = mg.full((3,), 1e30, device=device)
    assert abs(nn.functional.cosine_similarity(big * 1e-20, big * 1e-20, dim=0).item() - 1) < 1e-6
    wide = mg.tensor([[[1.0, 2.0, float("inf"), 4.0, 5.0, 6.0]]], device=device)
    found = nn.functional.interpolate(wide, size=12, mode="linear").tolist()[0][0]
    exact = torch.nn.functional.interpolate(torch.tensor(wide.tolist()), size=12, mode="linear")
    np.testing.assert_array_equal(found, exact[0, 0].numpy())
    for weights in ([0.0, 0.0], [1.0, float("inf")]):
        raises(ValueError, "finite weights", mg.tensor(weights, device=device).multinomial, 2, True)
    raises(TypeError, "max", mg.ones((2, 3), device=device).max, 1, True)


def test_arguments_that_mean_something_else_are_refused(device):
    """Integers are indices and not masks, and an argument is not given twice."""
    x = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
    bits = mg.tensor([0, 1, 1], device=device)
    for call in (
        lambda: x.masked_select(bits), lambda: x.masked_fill(bits, 0.0), lambda: x.masked_fill_(bits, 0.0),
        lambda: x.select(0, None), lambda: x.sum(1, True, keepdims=False),
        lambda: x.var(0, unbiased=5), lambda: x.std(False), lambda: x.std(0, False), lambda: x.sum(True),
        lambda: mg.sum(x, other=0), lambda: mg.sum(x, target=1), lambda: bits.masked_fill(bits > 0, 0.5),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            call()
    for p in (float("nan"), 2.0, -1.0):
        raises(ValueError, "bernoulli_", x.bernoulli_, p)
    assert nn.functional.mse_loss(input=x, target=x + 2).item() == 4
    assert x.view(np.int64(6)).shape == x.expand(np.int64(2), 3).reshape(-1).shape == (6,)
    # weights whose sum is infinite, and as many draws as weights in little memory
    drawn = mg.tensor([1.7e308] * 4, dtype="float64", device=device).multinomial(100, True)
    assert sorted({*drawn.tolist()}) == [0, 1, 2, 3]
    assert mg.ones(50_000, device=device).multinomial(50_000, True).max() < 50_000
    empty = nn.functional.interpolate(mg.ones((1, 0, 4, 4), device=device), size=2**28)
    assert empty.shape == (1, 0, 2**28, 2**28)


@pytest.mark.parametrize("function", [mg.sum, mg.relu, mg.diff, F.mse_loss])
def test_a_function_that_renames_arguments_is_a_function(function):
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function
    assert repr(function).startswith(("<cyfunction ", "<function "))
    assert pydoc.getdoc(function)
    assert next(iter(inspect.signature(function).parameters)) in ("x", "input")
    with pytest.raises(TypeError, match="fast") as caught:
        function(fast=True)
    assert "pytorch_names" not in str([entry.path for entry in caught.traceback])
