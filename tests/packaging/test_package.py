"""The package: what it imports, the version, the configuration report, the command line."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import minigrad as mg


def run(*arguments):
    """Return the output of a fresh interpreter."""
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


def test_import_is_light():
    """It imports NumPy and the standard library, and nothing that is slow, optional, or for a single feature."""
    loaded = run("-c", "import sys, minigrad; print(*sys.modules)").split()
    heavy = {
        "torch", "jax", "cupy", "scipy", "sklearn", "matplotlib", "pandas", "safetensors", "tqdm", "Cython",
        "setuptools", "unittest", "IPython",
    }  # fmt: skip
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert not {"numpy.random", "importlib.metadata"} & set(loaded)  # 10 and 20 ms
    later = (
        "minigrad.data", "minigrad.learn", "minigrad.onnx", "minigrad.viz", "minigrad.tools.tables", "minigrad.nn.tree",
        "minigrad.profiling.work",
    )  # fmt: skip
    assert not [name for name in loaded if name.startswith(later)]
    assert {"data", "learn", "onnx", "viz"} <= set(dir(mg))


def test_the_source_without_its_compiled_part_says_what_to_do(tmp_path):
    compiled = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(Path(mg.__file__).parent, tmp_path / "minigrad", ignore=compiled)
    command = [sys.executable, "-c", "import sys; sys.path.insert(0, ''); import minigrad"]
    tried = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    says = tried.stderr.splitlines()[-1]
    assert says.startswith(f"ModuleNotFoundError: [minigrad] {tmp_path}")
    assert "`pip install -e .`" in says


def test_version():
    assert mg.__version__ == importlib.metadata.version("minigrad")


def test_build_under_test():
    """A run that is meant to test one build (debug, sanitize, an installed wheel) must not use another one."""
    expected = os.environ.get("MINIGRAD_EXPECT_BUILD")
    if expected:
        assert Path(expected).resolve() in Path(mg.__file__).resolve().parents


@pytest.mark.parametrize("package", ["torch", "onnx", "onnxruntime"])
def test_other_libraries_where_they_are_required(package):
    """Elsewhere they may be absent and their tests say so; where these variables are set, they have to run."""
    if os.environ.get(f"MINIGRAD_REQUIRE_{'TORCH' if package == 'torch' else 'ONNX'}"):
        assert importlib.import_module(package).__version__


def test_show_config(capsys):
    mg.show_config()
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(rows) == ["minigrad", "Python", "NumPy", "SIMD", "medium", "threads", "BLAS", "CuPy", "GPU"]
    assert rows["minigrad"] == mg.__version__
    assert rows["medium"] in ("bfloat16", "float32 (no AVX512_BF16)")
    assert rows["SIMD"] in ("baseline", "avx2", "avx512")
    assert int(rows["threads"]) == mg.get_num_threads()
    assert rows["BLAS"].startswith("OpenBLAS")


def test_command_line():
    assert run("-m", "minigrad").startswith(f"minigrad  {mg.__version__}\n")
    assert "python -m minigrad.learn" in run("-m", "minigrad", "--help")
    found = subprocess.run([sys.executable, "-m", "minigrad", "learn"], capture_output=True, text=True)
    assert found.returncode == 2
    assert "got learn: python -m minigrad.learn is the course" in found.stderr


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_instruction_set_can_be_named(isa):
    """MINIGRAD_ISA selects among the processor's instruction sets."""
    best = mg.engine.devices.cpu.isa()
    order = ["baseline", "avx2", "avx512"]
    if order.index(isa) > order.index(best):
        pytest.skip(f"this processor has no {isa}")
    code = "import minigrad as mg; print(mg.engine.devices.cpu.isa(), (mg.arange(5.0) * 2).sum().item())"
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"MINIGRAD_ISA": isa}, check=True, capture_output=True, text=True
    ).stdout
    assert found.split() == [isa, "20.0"]


def test_nothing_but_the_package_is_installed():
    """It has compiled modules, Python, stubs, kernels and page templates, and no sources of compiled code.

    It is below 11 MB, with the kernels of all instruction sets.
    """
    files = [path for path in Path(mg.__file__).parent.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in files} <= {".py", ".pyi", ".so", ".cu", ".cuh", ".typed", ".html", ".js", ".css"}
    assert any(path.name == "py.typed" for path in files)
    # a developer's tree may contain modules for other Pythons, and one with sanitizers is larger by design
    tag = sysconfig.get_config_var("EXT_SUFFIX")
    ours = [path for path in files if path.suffix != ".so" or path.name.endswith(tag)]
    assert sum(path.stat().st_size for path in ours) < 11e6 or "build" in Path(mg.__file__).parts
