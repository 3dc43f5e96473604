"""Every module compiles for every GPU architecture, and takes no more than the table of the documentation says."""

import os

import pytest
from kept import made_once
from kernels import EVERY
from nvrtc import NVRTC, compile_for, messages, version
from resources import FILES, OPTIMIZED, build, read_table, resources

from minigrad.cuda import launch, recurrent

MODULES = sorted({(file, dtype) for file, _, dtype in EVERY})
# GPUs from Turing to Blackwell; a longer list is in CONTRIBUTING.md.
ARCHITECTURES = os.environ.get("MINIGRAD_ARCHITECTURES", "75 80 90 100 120").split()

needs_nvrtc = pytest.mark.skipif(
    NVRTC is None, reason="NVRTC cannot be found: pip install nvidia-cuda-nvrtc-cu12, or nvidia-cuda-nvrtc for CUDA 13"
)


def test_nvrtc_is_there_where_it_is_promised():
    assert NVRTC is not None or os.environ.get("MINIGRAD_REQUIRE_NVRTC", "0") == "0"


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file, dtype", MODULES)
def test_compiles(file, dtype, architecture):
    code = launch.functions(dtype) + launch.source(file)[0]
    # Optimizing takes four fifths of the time and reports no further errors.
    options = *launch.options(dtype), f"--gpu-architecture=sm_{architecture}", "--Ofast-compile=max"

    def compiled():
        log, image = compile_for(code, options)
        assert image, log
        assert not log
        return image

    image = made_once(compiled, code, options, version())
    assert all(name.encode() in image for of, name, d in EVERY if (of, d) == (file, dtype))


@needs_nvrtc
@pytest.mark.parametrize("architecture", OPTIMIZED)
@pytest.mark.parametrize("file", FILES)
def test_kernels_take_no_more_than_documented(file, architecture):
    code, options = build(file, architecture)
    log = made_once(lambda: messages(code, options).encode(), code, options, version()).decode()
    found, table = resources(log), read_table(version())
    assert set(found) >= {name for of, name, dtype in EVERY if (of, dtype) == (file, "float32")}
    for name, used in found.items():
        limit = table[name, architecture]
        assert all(u <= most for u, most in zip(used, limit, strict=True)), (name, used, limit)
        if file == "recurrent.cu":
            assert used.shared <= recurrent.RESERVED


@needs_nvrtc
def test_the_table_lists_every_kernel():
    names = {name for name, _ in read_table()}
    assert {name for _, name, dtype in EVERY if dtype == "float32"} <= names <= {name for _, name, _ in EVERY}


@needs_nvrtc
def test_a_mistake_is_found():
    log, image = compile_for('extern "C" __global__ void k(float* x) { x[0] = y; }', ("--gpu-architecture=sm_80",))
    assert "undefined" in log
    assert not image
