"""An emulation on the CPU of the few names of CuPy that minigrad uses: modules are compiled by the C++ compiler after
``emulate.hpp``, and memory is the CPU's.

Every allocation lies between guard bytes that no kernel may write; every launch checks all of them.
"""

import ctypes
import hashlib
import os
import re
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from . import cuda

HEADER = Path(__file__).parent.parent / "emulate.hpp"
CACHE = Path(
    os.environ.get("MINIGRAD_EMULATION_CACHE", Path(tempfile.gettempdir()) / f"minigrad-emulation-{os.getuid()}")
)
__version__ = "emulated"
# Threads per block that have enough registers for any kernel: 255 each of 65,536
UNBOUND = 256


class RawModule:
    """A compiled module."""

    def __init__(self, *, code, options=()):
        self.code = code
        key = hashlib.sha256((code + HEADER.read_text() + repr(options)).encode()).hexdigest()[:24]
        shared = CACHE / f"{key}.so"
        if not shared.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            # Compiled elsewhere and then renamed, as another process may compile the same module at the same time.
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                self.compile(code, options, Path(folder)).rename(shared)
        # PyDLL keeps the GIL: the emulated indices and fibers are global, so threads must take turns.
        self.shared = ctypes.PyDLL(str(shared))

    def compile(self, code, options, folder):
        """Compile a module to a shared library with a C function for each of its kernels."""
        source, made = folder / "module.cpp", folder / "module.so"
        definitions = [option for option in options if option.startswith("-D")]
        source.write_text(code)
        present = self.run("-E", "-P", *definitions, source)
        kernels = re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(", present)
        # With internal linkage, templates may have their own variables in the section of shared memory.
        text = f'#include "{HEADER}"\nnamespace {{\n{code}\n}}\n'
        source.write_text(text + "".join(f"EMULATED({name})\n" for name in kernels))
        self.run(
            "-std=c++20",
            "-O1",
            "-fno-math-errno",
            "-ffp-contract=off",
            "-w",
            "-shared",
            "-fPIC",
            *definitions,
            source,
            "-o",
            made,
        )
        return made

    @staticmethod
    def run(*options):
        command = [os.environ.get("CXX", "g++"), *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def get_function(self, name):
        bound = re.search(rf"__launch_bounds__\((\d+)[^)]*\) {name}\(", self.code)
        return RawKernel(self.shared, name, int(bound[1]) if bound else UNBOUND)


LAUNCH = struct.Struct("6I3Q")  # `Launch` of emulate.hpp
SIGNED, UNSIGNED, FLOAT = (struct.Struct(kind).pack for kind in "qQd")


def passed(argument):
    """Return the bytes that CuPy passes for an argument, padded to a multiple of eight; Python numbers have eight."""
    if type(argument) is int:
        return (UNSIGNED if argument >> 63 > 0 else SIGNED)(argument)
    if type(argument) is float:
        return FLOAT(argument)
    assert isinstance(argument, (np.ndarray, np.generic)), type(argument)
    assert argument.size == 1, "one number or one struct"
    return argument.tobytes() + bytes(-argument.nbytes % 8)


class RawKernel:
    """A kernel of a module; a call runs it to completion."""

    seed = 0

    def __init__(self, shared, name, most):
        self.name, self.most, self.function = name, most, shared[f"run_{name}"]
        self.function.argtypes = ctypes.c_char_p, ctypes.c_size_t
        self.function.restype = ctypes.c_char_p

    def __call__(self, grid, block, args, *, shared_mem=0):
        assert not shared_mem, "kernels have shared memory of fixed size"
        (x, y, z), (width, height, depth) = ((*lengths, 1, 1)[:3] for lengths in (grid, block))
        if width * height * depth > self.most:
            raise RuntimeError(f"{self.name}: a block of {block} threads, more than the launch bounds of {self.most}")
        cuda.check_devices(self.name, args)
        RawKernel.seed = (RawKernel.seed + 0x9E3779B97F4A7C15) % 2**64
        launch = LAUNCH.pack(x, y, z, width, height, depth, RawKernel.seed, *cuda.allocations())
        packed = b"".join([launch, *map(passed, args)])
        if failure := self.function(packed, len(packed)):
            raise RuntimeError(f"{self.name}: {failure.decode()}")
