"""Kernels are compiled once per machine."""

from pathlib import Path

import pytest
from cupy.cuda import compiler

from minigrad.cuda import launch, modules

CODE = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }'


@pytest.fixture
def compiled(monkeypatch):
    """Return a list to which each compilation adds a text."""
    texts, original = [], compiler.compile_using_nvrtc

    def counted(code, options=()):
        texts.append(code)
        return original(code, options)

    monkeypatch.setattr(compiler, "compile_using_nvrtc", counted)
    return texts


def load(options=()):
    assert modules.load(CODE, (*launch.options("float32"), *options), 0).get_function("k") is not None


def test_compiled_once(compiled, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path / "new" / "folder"))
    load()
    load()
    assert len(compiled) == 1
    load(("-DMORE=1",))
    assert len(compiled) == 2
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 2


def test_without_a_place_to_keep_it(compiled, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", str(tmp_path / "file"))
    load()
    load()
    assert len(compiled) == 2


def test_the_folder(monkeypatch):
    for name in ("XDG_CACHE_HOME", "MINIGRAD_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert modules.cache() == Path.home() / ".cache" / "minigrad"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert modules.cache() == Path("/x/minigrad")
    monkeypatch.setenv("MINIGRAD_CACHE_DIR", "/m")
    assert modules.cache() == Path("/m")
