"""The configuration of this installation: `minigrad.show_config()`, `python -m minigrad`.

Modules needed only here are imported inside the functions, so that they do not slow down `import minigrad`.
"""

from minigrad._version import __version__
from minigrad.engine.devices import cpu

CUPY = ("cupy", "cupy-cuda12x", "cupy-cuda13x")  # one module, published under several names


def show_config() -> None:
    """Print the version, the instruction set in use, threads, BLAS, CuPy and the GPUs it sees.

    ``medium`` is how `set_float32_matmul_precision` computes ``"medium"`` on this CPU.

    CuPy is imported only if it is installed, and only here.

    Examples
    --------
    >>> mg.show_config()                                        # doctest: +SKIP
    minigrad  0.1.0
    Python    3.11.7 (CPython, x86_64, Linux)
    NumPy     2.4.6
    SIMD      avx512
    medium    bfloat16
    threads   2
    BLAS      OpenBLAS 0.3.34 SkylakeX
    CuPy      not installed
    GPU       none
    """
    import platform
    from importlib import metadata

    system = f"{platform.python_implementation()}, {platform.machine()}, {platform.system()}"
    cupy, gpu = _cuda()
    rows = {
        "minigrad": __version__, "Python": f"{platform.python_version()} ({system})",
        "NumPy": metadata.version("numpy"), "SIMD": cpu.isa(),
        "medium": "bfloat16" if cpu.has_bfloat16_products() else "float32 (no AVX512_BF16)",
        "threads": cpu.get_num_threads(), "BLAS": cpu.blas(), "CuPy": cupy, "GPU": gpu,
    }  # fmt: skip
    for name, value in rows.items():
        print(f"{name:8s}  {value}")


def _cuda() -> tuple[str, str]:
    """Describe CuPy's version and the devices it finds."""
    from importlib import metadata, util

    if util.find_spec("cupy") is None:
        return "not installed", "none"
    version = "version unknown"
    for name in CUPY:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        from cupy.cuda import runtime

        count = runtime.getDeviceCount()
        names = [runtime.getDeviceProperties(device)["name"].decode() for device in range(count)]
    except Exception as error:  # a driver is missing or too old, or the installation is broken
        return version, f"none ({error})"
    return version, ", ".join(names) or "none"
