"""Compile CUDA C with NVRTC, the compiler that comes with CuPy, and keep the machine code on disk.

`cupy.RawModule` could do both, but it always compiles with ``-ftz=true``: every subnormal float32 number would become
zero, and a GPU would compute something else than the CPU.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from minigrad.tools.files import write


def cache() -> Path:
    """Return the folder of the machine code: MINIGRAD_CACHE_DIR, by default minigrad in the user's cache folder."""
    users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MINIGRAD_CACHE_DIR") or Path(users, "minigrad"))


def load(code: str, options: tuple[str, ...], device: int) -> Any:
    """Return a text as a `cupy.cuda.function.Module` on a GPU, compiled unless an earlier process has done that.

    Raises
    ------
    cupy.cuda.compiler.CompileException
        If NVRTC rejects the text.
    """
    import cupy
    from cupy.cuda import compiler, function
    from cupy_backends.cuda.libs import nvrtc

    with cupy.cuda.Device(device) as current:
        parts = code, options, current.compute_capability, nvrtc.getVersion(), cupy.__version__
        path = cache() / (hashlib.sha256(repr(parts).encode()).hexdigest()[:32] + ".cubin")
        try:
            image = path.read_bytes()
        except OSError:
            image, _ = compiler.compile_using_nvrtc(code, options)
            with suppress(OSError):  # the folder is read-only or full: the next process compiles again
                path.parent.mkdir(parents=True, exist_ok=True)
                write(str(path), [image])
        loaded = function.Module()
        loaded.load(image)
        return loaded
