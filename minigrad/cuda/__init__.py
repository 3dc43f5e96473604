"""The CUDA backend: kernels in CUDA C (the ``.cu`` files), launched through CuPy.

Nothing here imports CuPy, calls the driver or compiles a kernel before the first tensor on a GPU: ``import minigrad``
needs neither CuPy nor a GPU.
"""

import functools
from typing import TYPE_CHECKING, Any

from minigrad.engine.devices.gpu_memory import allocate, empty_pools, share
from minigrad.engine.memory.pool import set_gpus
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.memory.shapes import parse_device
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.pytorch_names import lookup
from minigrad.engine.tensor.tensor import Tensor

if not TYPE_CHECKING:
    __getattr__ = lookup(__name__)

__all__ = ["device_count", "is_available", "record_stream", "synchronize"]

INSTALL = "pip install 'cupy-cuda12x[ctk]' or 'cupy-cuda13x[ctk]'"  # what the extras cuda12x and cuda13x install


def is_available() -> bool:
    """Whether tensors can be on a GPU, that is, CuPy is installed and finds one.

    Examples
    --------
    >>> import minigrad as mg
    >>> device = "cuda" if mg.cuda.is_available() else "cpu"
    """
    return device_count() > 0


def device_count() -> int:
    """Return the number of GPUs that CuPy finds; 0 without CuPy or without a driver.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.cuda.device_count() >= 0
    True
    """
    return _found()[0]


def synchronize(device: int | str = 0) -> None:
    """Wait until a GPU has finished all work queued so far.

    Operations on a GPU return before their results are computed, so synchronize before reading a clock.

    Parameters
    ----------
    device : int or str
        The number of the GPU, or its name: ``"cuda"``, ``"cuda:1"``.

    Raises
    ------
    RuntimeError
        If there is no such GPU.
    ValueError
        For a device that is not a GPU.
    IndexError
        If an index or a label on the GPU was out of range in an earlier operation that has not been reported yet.

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


def record_stream(x: Tensor, stream: Any) -> None:
    """Keep the memory of x, once it is freed, until a stream has done the work queued so far.

    Memory is used again in the order of the stream that allocated it. A tensor that another stream reads or writes must
    be kept until that stream is done; or record the stream, as in PyTorch's ``Tensor.record_stream``. The streams also
    have to wait for one another where they exchange values, which this does not do.

    Parameters
    ----------
    x : Tensor
        On a GPU. Nothing has to be done for memory that another library allocated.
    stream : cupy.cuda.Stream

    Raises
    ------
    TypeError
        If `x` is no tensor, or `stream` no stream of CuPy.
    ValueError
        If `x` is not on a GPU.

    Examples
    --------
    >>> import minigrad as mg
    >>> if mg.cuda.is_available():
    ...     import cupy
    ...     side = cupy.cuda.Stream(non_blocking=True)
    ...     with side:
    ...         x = mg.ones(3, device="cuda")
    ...     cupy.cuda.get_current_stream().wait_event(side.record())
    ...     y = x + 1
    ...     mg.cuda.record_stream(x, cupy.cuda.get_current_stream())
    ...     del x
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"[record_stream] expected a tensor, got {kind_of(x)}")
    if x.device == "cpu":
        raise ValueError("[record_stream] expected a tensor on a GPU, got one on the CPU")
    if not (hasattr(stream, "ptr") and hasattr(stream, "record")):
        raise TypeError(f"[record_stream] expected a stream of CuPy, got {kind_of(stream)}")
    share(x, stream)


@functools.cache
def _found() -> tuple[int, str]:
    """Return the number of GPUs, and the reason if there is none."""
    try:
        from cupy.cuda import runtime

        return runtime.getDeviceCount(), "no GPU was found"
    except ImportError as error:
        return 0, f"CuPy cannot be imported ({error}): {INSTALL}"
    except Exception as error:  # CuPy has its own errors for a driver that is missing or too old
        return 0, f"CuPy finds no GPU (does nvidia-smi list one?): {error}"


def _check(op: str, device: int) -> None:
    count, reason = _found()
    if count == 0:
        raise RuntimeError(f"[{op}] cuda:{device} needs CuPy and a GPU, but {reason}")
    if not 0 <= device < count:
        raise RuntimeError(f"[{op}] expected a GPU from cuda:0 to cuda:{count - 1}, got cuda:{device}")


class Gpus:
    """What the engine asks for arrays on GPUs; `backend` and `launch` are loaded when it does.

    DLPack identifies a stream by 1 for the default stream, 2 for the per-thread default stream, -1 for no
    synchronization, and otherwise by its address.
    """

    allocate = staticmethod(allocate)  # (bytes, device) -> (address, owner)
    empty_pools = staticmethod(empty_pools)

    @staticmethod
    def prepare(device: int) -> None:
        """Make a GPU ready for its first tensor, and add its pool."""
        _check("device", device)
        from minigrad.cuda import backend

        backend.prepare(device)

    @staticmethod
    def load(file: str, name: str, dtype: str, device: int) -> Any:
        """Load a kernel."""
        from minigrad.cuda import launch

        return launch.load(file, name, dtype, device)

    @staticmethod
    def transfer(x: Any, index: int) -> Any:
        """Copy x to the device of that index: 0 is the CPU, 1 + i is cuda:i."""
        if x.device != "cpu":
            _check("device", int(x.device.removeprefix("cuda:")))
        if index:
            _check("device", index - 1)
        from minigrad.cuda import backend

        return backend.transfer(x, index)

    @staticmethod
    def current_stream(device: int) -> int:
        """Return the current stream of cuda:device, by DLPack's number."""
        _check("dlpack", device)
        from minigrad.cuda import backend

        return backend.current_stream(device)

    @staticmethod
    def hand_over(device: int, stream: int | None) -> None:
        """Let a stream, by DLPack's number, wait for the work queued on the current one."""
        from minigrad.cuda import backend

        backend.hand_over(device, stream)


set_gpus(Gpus)
