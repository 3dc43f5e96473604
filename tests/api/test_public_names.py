"""Every public name is documented, with an example that runs."""

import doctest
import inspect
import itertools
from types import MappingProxyType

import pytest
from public_names import NAMES

import minigrad as mg
from minigrad import data, nn, optim, pytorch, saving, viz
from minigrad.nn import functional
from minigrad.nn.recurrent.recurrence import GateNorm

PACKAGES = (nn, nn.init, nn.utils, nn.utils.rnn, optim, optim.lr_scheduler, optim.swa_utils, data, saving, viz)


def own(module):
    """Return the public names of a module: those it lists, or the functions that it defines."""
    return getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if name[0] != "_" and inspect.isroutine(value) and value.__module__ == module.__name__
    ]  # fmt: skip


EXPLAINED = {
    **NAMES, "GateNorm": GateNorm,
    **{f"{module.__name__}.{name}": getattr(module, name) for module in PACKAGES for name in own(module)},
}  # fmt: skip
WITHOUT = {
    "GradientError", "CaptureError", "Optimizer", "LRScheduler", "Summary", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [n for n, v in EXPLAINED.items() if n.rpartition(".")[2] not in WITHOUT and not inspect.ismodule(v)]
)
def test_example_runs(name, monkeypatch, tmp_path):
    """The examples of the name itself, and those of a class's methods."""
    monkeypatch.chdir(tmp_path)
    mg.manual_seed(0)
    found = doctest.DocTestFinder().find(EXPLAINED[name], name, globs={"mg": mg})
    assert inspect.getdoc(EXPLAINED[name])
    assert any(test.examples for test in found if test.name == name), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("module, wrong", [(mg, "tanhh"), (nn, "Linaer"), (functional, "crossentropy"), (optim, "Adm")])
def test_python_has_what_it_needs_to_suggest_a_name(module, wrong):
    with pytest.raises(AttributeError, match=f"{module.__name__!r} has no attribute {wrong!r}") as raised:
        getattr(module, wrong)
    assert (raised.value.name, raised.value.obj) == (wrong, module)


@pytest.mark.parametrize("name", sorted(n for n in dir(mg.zeros(1)) if not n.startswith("_")))
def test_members_of_tensor_are_documented(name):
    own = inspect.getdoc(getattr(mg.Tensor, name))
    assert own or f"{name}" in mg.Tensor.__doc__, f"Tensor.{name} is not documented"


def positional(function, same=MappingProxyType({})):
    """Return the names of the positional arguments, from the second one on; `same` maps PyTorch's names to ours."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds][1:]
    return [same.get(name, name) for name in found]


def test_a_name_that_exists_twice_means_the_same():
    """The functions and methods of a name are the same object, or agree in their positional arguments."""
    places = {"minigrad": mg, "functional": functional, "Tensor": mg.Tensor}
    found = {}
    for place, owner in places.items():
        for name in dir(mg.zeros(1) if owner is mg.Tensor else owner):  # without PyTorch's names
            if not name.startswith("_") and inspect.isroutine(getattr(owner, name)):
                found.setdefault(name, {})[place] = getattr(owner, name)
    several = {name: functions for name, functions in found.items() if len(set(functions.values())) > 1}
    assert {"reshape", "transpose", "instance_norm"} <= several.keys()
    for name, functions in several.items():
        first, *others = map(positional, functions.values())
        for other in others:
            assert all(a == b for a, b in zip(first, other, strict=False)), (name, first, other)


def test_pytorch_names_do_not_change_the_meaning_of_an_argument():
    """Methods and functions that only have PyTorch's names take the same positional arguments as ours of that name.

    `minigrad.pad` takes NumPy's widths, (before, after) for each axis, and `nn.functional.pad` PyTorch's, from the last
    axis on: what both accept means the same to both, see test_products.
    """
    same = {
        "other": "y", "exponent": "y", "vec2": "y", "dim": "axis", "dim1": "axis1", "dim2": "axis2", "dims": "axis",
        "shifts": "shift", "diagonal": "k",
    }  # fmt: skip
    differ, compared = set(), 0
    for name in pytorch.MEMBERS.keys() | set(functional.__all__) | {n for n in dir(mg) if not n.startswith("_")}:
        functions = {getattr(place, name, None) for place in (mg, functional, mg.Tensor)}
        for pair in itertools.combinations(filter(inspect.isroutine, functions), 2):
            compared += 1
            if any(a != b for a, b in zip(*(positional(f, same) for f in pair), strict=False)):
                differ.add(name)
    assert compared > 20
    assert differ == {"pad"}
