"""NVRTC, the compiler that CuPy uses, which needs no GPU.

Run as a program, this compiles the text that it reads with the options that it is given, and prints the messages.
"""

import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path


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


def messages(code, options):
    """Return the compiler's messages, of a process of its own: registers depend on what was compiled before."""
    command = [sys.executable, __file__, *options]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    print(compile_for(sys.stdin.read(), sys.argv[1:])[0])
