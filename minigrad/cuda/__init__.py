"""The CUDA backend: kernels in CUDA C (the ``.cu`` files), started through CuPy.

Nothing here is imported, compiled or asked of a driver before the first tensor on a GPU: ``import minigrad`` needs
neither CuPy nor a GPU.
"""

import functools
from typing import Any

from minigrad.engine.array import parse_device, set_device_hooks
from minigrad.engine.ops.arguments import integer

__all__ = ["device_count", "is_available", "synchronize"]

INSTALL = "pip install 'cupy-cuda12x[ctk]' or 'cupy-cuda13x[ctk]'"  # what the extras cuda12x and cuda13x bring


def is_available() -> bool:
    """Whether tensors can be on a GPU: whether CuPy is installed and finds one.

    Examples
    --------
    >>> import minigrad as mg
    >>> device = "cuda" if mg.cuda.is_available() else "cpu"
    """
    return device_count() > 0


def device_count() -> int:
    """The number of GPUs that CuPy finds; 0 without CuPy, or without a driver.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.cuda.device_count() >= 0
    True
    """
    return _found()[0]


def synchronize(device: int | str = 0) -> None:
    """Wait until a GPU has done all that was asked of it.

    Operations on a GPU return before it has computed anything; what measures time has to wait for it.

    Parameters
    ----------
    device : int or str
        The number of the GPU, or its name: ``"cuda"``, ``"cuda:1"``.

    Raises
    ------
    RuntimeError
        If there is no such GPU.
    ValueError
        For another device.
    IndexError
        If an index that was on the GPU, or a label, was out of range in an operation since.

    Examples
    --------
    >>> import minigrad as mg
    >>> if mg.cuda.is_available():
    ...     mg.cuda.synchronize()
    """
    if isinstance(device, str):
        number = parse_device(device, "synchronize") - 1
    else:
        number = integer("synchronize", "device", device)
    if number < 0:
        raise ValueError(f"[synchronize] expected a GPU, got {device!r}")
    _check("synchronize", number)
    from minigrad.cuda import faults

    faults.wait(number)


@functools.cache
def _found() -> tuple[int, str]:
    """The number of GPUs, and what stands in the way where there is none."""
    try:
        from cupy.cuda import runtime

        return runtime.getDeviceCount(), "no GPU was found"
    except ImportError as error:
        return 0, f"CuPy cannot be imported ({error}): {INSTALL}"
    except Exception as error:  # CuPy's own errors, of a driver that is missing or too old
        return 0, f"CuPy finds no GPU (does nvidia-smi list one?): {error}"


def _check(op: str, device: int) -> None:
    count, reason = _found()
    if count == 0:
        raise RuntimeError(f"[{op}] cuda:{device} needs CuPy and a GPU, but {reason}")
    if not 0 <= device < count:
        raise RuntimeError(f"[{op}] expected one of {count} GPUs, of which the first is cuda:0, got cuda:{device}")


def _allocate(size: int, device: int) -> tuple[int, Any]:
    """Memory of CuPy's pool: its address, and the object that keeps it."""
    _check("device", device)
    from minigrad.cuda import backend

    return backend.allocate(size, device)


def _transfer(x: Any, index: int) -> Any:
    """A copy of x on the device of that index: 0 is the CPU, 1 + i is cuda:i."""
    if x.device != "cpu":
        _check("device", int(x.device.removeprefix("cuda:")))
    if index:
        _check("device", index - 1)
    from minigrad.cuda import backend

    return backend.transfer(x, index)


class _Streams:
    """Whose work waits for whose where an array goes from one library to another.

    DLPack's number of a stream is 1 for the default stream, 2 for that of each thread, -1 for "wait for nothing", and
    the address of any other.
    """

    @staticmethod
    def current(device: int) -> int:
        _check("dlpack", device)
        from minigrad.cuda import backend

        return backend.current_stream(device)

    @staticmethod
    def hand_over(device: int, stream: int | None) -> None:
        from minigrad.cuda import backend

        backend.hand_over(device, stream)


set_device_hooks(_allocate, _transfer, _Streams)
