"""Every module compiles for every GPU architecture: NVRTC, the compiler that CuPy uses, needs no GPU."""

import ctypes
import importlib.util
import os
import re
from pathlib import Path

import pytest
from kept import made_once
from kernels import EVERY

from minigrad.cuda import launch

MODULES = sorted({(file, dtype) for file, _, dtype in EVERY})
ARCHITECTURES = (75, 80, 90)
# Bytes of the stack frame, and of spilled registers stored and loaded, on sm_90 in float32: at most these, else none.
# The reduction of large arguments of sin and cos indexes an array.
LOCAL_MEMORY = {
    "unary": (32, 0, 0),
    "attention": (160, 0, 0),
    "attention_64": (104, 228, 328),
    "attention_128": (16, 40, 112),
    "attention_backward_key": (160, 32, 52),
    "attention_backward_key_64": (232, 452, 552),
    "attention_backward_key_128": (200, 308, 388),
    "attention_backward_query": (128, 0, 0),
    "attention_backward_query_64": (80, 128, 240),
    "cross_entropy_backward": (32, 32, 32),
    "conv2d_backward_data_wide": (32, 28, 28),
    "conv2d_backward_data_wide_tf32": (160, 156, 284),
    "conv2d_wide": (24, 20, 20),
    "conv2d_wide_tf32": (24, 20, 20),
    "group_held": (64, 80, 384),
    "norm_held": (56, 56, 160),
}


def library():
    """Load NVRTC from the package nvidia-cuda-nvrtc-cu12 or -cu13, or return None."""
    for name in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            continue
        for folder in spec.submodule_search_locations if spec else ():
            for path in sorted(Path(folder, "lib").glob("libnvrtc.so.*")):
                # NVRTC does not search for its builtins in its own folder.
                for part in path.parent.glob("libnvrtc-builtins.so.*"):
                    ctypes.CDLL(str(part), ctypes.RTLD_GLOBAL)
                return ctypes.CDLL(str(path))
    return None


NVRTC = library()


def test_nvrtc_is_there_where_it_is_promised():
    assert NVRTC is not None or os.environ.get("MINIGRAD_REQUIRE_NVRTC", "0") == "0"


def compile_for(code, options):
    """Return the compiler's messages for a text, and the compiled module."""
    program = ctypes.c_void_p()
    assert NVRTC.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"module.cu", 0, None, None) == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = NVRTC.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    image = b""
    if not failed:
        NVRTC.nvrtcGetCUBINSize(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        NVRTC.nvrtcGetCUBIN(program, buffer)
        image = buffer.raw
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode().strip("\0 \n"), image


def version():
    """Return the version of NVRTC."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert NVRTC.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    return major.value, minor.value


@pytest.mark.skipif(NVRTC is None, reason="NVRTC cannot be found: pip install nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file, dtype", MODULES)
def test_compiles(file, dtype, architecture):
    code = launch.functions(dtype) + launch.source(file)[0]
    # Optimizing takes four fifths of the time and reports no further errors.
    options = *launch.options(dtype), f"--gpu-architecture=sm_{architecture}", "--Ofast-compile=mid"

    def compiled():
        log, image = compile_for(code, options)
        assert image, log
        assert not log
        return image

    image = made_once(compiled, code, options, version())
    assert all(name.encode() in image for of, name, d in EVERY if (of, d) == (file, dtype))


@pytest.mark.skipif(NVRTC is None, reason="NVRTC cannot be found: pip install nvidia-cuda-nvrtc-cu12")
@pytest.mark.parametrize(
    "file", sorted({file for file, dtype in MODULES if dtype == "float32" and file != "recurrent.cu"})
)  # recurrent.cu takes too long to optimize
def test_kernels_stay_in_registers(file):
    code = launch.functions("float32") + launch.source(file)[0]
    options = *launch.options("float32"), "--gpu-architecture=sm_90", "--ptxas-options=-v"
    log = made_once(lambda: compile_for(code, options)[0].encode(), code, options, version()).decode()
    found = re.findall(
        r"Function properties for (\w+)\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
        log,
    )
    kernels = {name for of, name, dtype in EVERY if (of, dtype) == (file, "float32")}
    assert kernels <= {name for name, *_ in found}
    for name, *used in found:
        limit = LOCAL_MEMORY.get(name, (0, 0, 0))
        assert all(int(u) <= most for u, most in zip(used, limit, strict=True)), (name, used, limit)


@pytest.mark.skipif(NVRTC is None, reason="NVRTC cannot be found: pip install nvidia-cuda-nvrtc-cu12")
def test_a_mistake_is_found():
    log, image = compile_for('extern "C" __global__ void k(float* x) { x[0] = y; }', ("--gpu-architecture=sm_80",))
    assert "undefined" in log
    assert not image
