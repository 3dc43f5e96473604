"""Every public name of nn, optim, data, saving and viz has an example that runs as shown."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import minigrad
from minigrad import data, nn, optim, saving, viz

MODULES = [
    name
    for package in (nn, optim, data, saving, viz)
    for _, name, _ in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    minigrad.manual_seed(0)
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"mg": minigrad}, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def own(module):
    """Return the public functions that a module defines itself."""
    return [(module, name) for name, value in vars(module).items()
            if name[0] != "_" and inspect.isroutine(value) and value.__module__ == module.__name__]  # fmt: skip


PUBLIC = [
    *[(nn, name) for name in nn.__all__],
    *[(optim, name) for name in optim.__all__ if name != "Optimizer"],
    *own(nn.init),
    *[(nn.utils, name) for name in nn.utils.__all__],
    *[(data, name) for name in data.__all__],
    *[(viz, name) for name in viz.__all__],
    *[(saving, name) for name in saving.__all__],
]


@pytest.mark.parametrize("module, name", PUBLIC, ids=lambda value: value if isinstance(value, str) else None)
def test_public_names_are_documented(module, name):
    value = getattr(module, name)
    doc = inspect.getdoc(value)
    assert doc
    if not inspect.ismodule(value) and name not in ("Summary", "no_grad"):
        assert ">>> " in doc, f"{name} has no example"
