"""Saving and loading tensors as safetensors files (https://huggingface.co/docs/safetensors)."""

import os
from collections.abc import Mapping
from typing import Any, Literal, overload

import numpy as np

from minigrad.creation import tensor
from minigrad.engine.ops.arguments import kind_of
from minigrad.engine.tensor import Tensor
from minigrad.nn.module import Module

DTYPES = {"BOOL": "bool", "I32": "int32", "I64": "int64", "F32": "float32", "F64": "float64"}

Path = str | os.PathLike[str]


def save(obj: Module | Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file, all or nothing.

    The file is written beside its final place, forced to disk and renamed, so that a crash leaves either the old file
    or the new one, never a part.

    Parameters
    ----------
    obj : Module or mapping of str to Tensor
        A module is saved as its `state_dict`. Any shapes, dtypes and layouts; devices are not recorded.
    path : str or os.PathLike
    metadata : mapping of str to str, optional
        Stored along with the tensors; `load` gives it back when asked to.

    Raises
    ------
    TypeError
        For an object, a name, a value or metadata of another type.
    OSError
        If the file cannot be written. Nothing is left behind then.

    Examples
    --------
    >>> import os, tempfile
    >>> import minigrad as mg
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     mg.save({"x": mg.arange(3)}, path, metadata={"epoch": "7"})
    ...     mg.load(path, metadata=True)
    ({'x': tensor([0, 1, 2])}, {'epoch': '7'})
    """
    from safetensors.numpy import save as serialize

    tensors = obj.state_dict() if isinstance(obj, Module) else obj
    target = _path("save", path)
    if not isinstance(tensors, Mapping):
        raise TypeError(f"[save] expected a Module or a dict of str to Tensor, got {kind_of(obj)}")
    if not isinstance(metadata, Mapping | None):
        raise TypeError(f"[save] expected metadata of str to str, got {metadata!r}")
    for key, value in (metadata or {}).items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"[save] expected metadata of str to str, got {key!r}: {value!r}")
    data = serialize({name: _array(name, value) for name, value in tensors.items()}, dict(metadata or {}) or None)
    _write(target, data)


def _path(op: str, path: Path) -> str:
    """A path as a str: open() would also take a number, for a file that is open already, and close it."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise TypeError(f"[{op}] expected a path, got {path!r}") from None


def _array(name: str, value: Tensor) -> np.ndarray:
    if not isinstance(name, str) or name == "__metadata__":
        raise TypeError(f"[save] expected a name of type str other than '__metadata__', got {name!r}")
    if not isinstance(value, Tensor):
        raise TypeError(f"[save] expected a Tensor for {name!r}, got {kind_of(value)}")
    return value.detach().to("cpu").contiguous().numpy()  # the library writes memory as it lies


def _write(path: str, data: bytes) -> None:
    target = os.path.realpath(path)  # what a link leads to
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, path) from error  # that of the temporary file helps nobody
        raise


@overload
def load(path: Path, metadata: Literal[False] = False) -> dict[str, Tensor]: ...
@overload
def load(path: Path, metadata: Literal[True]) -> tuple[dict[str, Tensor], dict[str, str]]: ...
def load(path: Path, metadata: bool = False) -> dict[str, Tensor] | tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file.

    Parameters
    ----------
    path : str or os.PathLike
    metadata : bool
        Whether to return the metadata as well.

    Returns
    -------
    dict of str to Tensor
        On the CPU, with dtypes as stored, in the order of the file, which is not that in which tensors were given to
        `save`: the library sorts them by dtype and name. With `metadata` a pair of this and a dict of str to str.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        If `path` is no path.
    ValueError
        For a file that is truncated or no safetensors file, and for dtypes that minigrad does not have (float16,
        bfloat16, uint8, …); it names the file and the reason.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.load("absent.safetensors")
    Traceback (most recent call last):
        ...
    FileNotFoundError: [Errno 2] No such file or directory: 'absent.safetensors'
    """
    import json

    import safetensors

    with open(_path("load", path), "rb") as file:
        data = file.read()
    try:
        entries = dict(safetensors.deserialize(data))  # in another order each time
    except safetensors.SafetensorError as error:
        raise ValueError(f"[load] {os.fspath(path)} is not a complete safetensors file: {error}") from error
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    stored = header.pop("__metadata__", None) or {}
    wrong = [f"{name} ({entries[name]['dtype']})" for name in header if entries[name]["dtype"] not in DTYPES]
    if wrong:
        raise ValueError(
            f"[load] {os.fspath(path)}: expected float32, float64, int32, int64 or bool, got {', '.join(wrong)}"
        )
    tensors = {name: _tensor(path, name, entries[name]) for name in header}
    return (tensors, stored) if metadata else tensors


def _tensor(path: Path, name: str, entry: dict[str, Any]) -> Tensor:
    dtype = np.dtype(DTYPES[entry["dtype"]])
    stored = dtype.newbyteorder("<") if dtype.itemsize > 1 else np.dtype("u1")  # a bool read as such might hold a 2
    try:
        return tensor(np.frombuffer(entry["data"], stored).astype(dtype).reshape(entry["shape"]))
    except ValueError as error:
        raise ValueError(f"[load] {os.fspath(path)}: {name!r} of {len(entry['shape'])} axes: {error}") from error
