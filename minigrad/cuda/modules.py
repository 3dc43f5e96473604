"""Compile CUDA C with NVRTC, the compiler that comes with CuPy, and keep the machine code on disk.

`cupy.RawModule` could do both, but it always compiles with ``-ftz=true``: every subnormal float32 number would become
zero, and a GPU would compute something else than the CPU.
"""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any


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
        if path.exists():
            image = path.read_bytes()
        else:
            image, _ = compiler.compile_using_nvrtc(code, options)
            _keep(image, path)
        loaded = function.Module()
        loaded.load(image)
        return loaded


def _keep(image: bytes, path: Path) -> None:
    """Write a file, which other processes see only once it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            part = Path(folder, path.name)
            part.write_bytes(image)
            part.replace(path)
    except OSError:  # the folder is read-only or full: the next process compiles again
        pass
