"""Every public name is documented, with an example that runs."""

import doctest
import inspect

import pytest

import minigrad as mg
from minigrad.nn import functional


def public(module, prefix):
    """(name, object) of all that a module offers, but for modules, data types and what it merely imports to use."""
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value)):
            yield prefix + name, value


NAMES = {
    **dict(public(mg, "")),
    **dict(public(mg.random, "random.")),
    **{f"functional.{name}": getattr(functional, name) for name in functional.__all__},
    **{f"cuda.{name}": getattr(mg.cuda, name) for name in mg.cuda.__all__},
    **{f"Tensor.{name}": getattr(mg.Tensor, name) for name in ("backward", "numpy")},
    "profile.trace": mg.profile.trace,
}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "GradientError"])
def test_example_runs(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    mg.manual_seed(0)
    found = doctest.DocTestFinder(recurse=False).find(NAMES[name], name, globs={})
    assert any(test.examples for test in found), f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", sorted(n for n in dir(mg.Tensor) if not n.startswith("_")))
def test_members_of_tensor_are_documented(name):
    own = inspect.getdoc(getattr(mg.Tensor, name))
    assert own or f"{name}" in mg.Tensor.__doc__, f"Tensor.{name} is not documented"
