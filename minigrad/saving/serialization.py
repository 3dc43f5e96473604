"""Saving and loading tensors as safetensors files (https://huggingface.co/docs/safetensors).

Such a file consists of the length of a header in eight bytes, the header, which is JSON, and the tensors without gaps.
This module reads and writes it tensor by tensor. The library of that name cannot write to an open file, and it reads
one either with a second copy in memory or by mapping it, which kills the process if the file is truncated meanwhile.
"""

import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Literal, NamedTuple, overload

import numpy as np

from minigrad.arrays.creation import empty
from minigrad.arrays.foreign import as_tensor, is_array
from minigrad.engine.memory.dtype import DType
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module
from minigrad.saving.formats import recognize
from minigrad.tools.files import Path, check_path, write

# In the order in which tensors are written, large elements first, so that each is aligned
DTYPES = {"I64": "int64", "F64": "float64", "F32": "float32", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
# Other dtypes, which `load` converts: integers always, floats to the dtype that is asked for
INTEGERS = {"I8": "int32", "U16": "int32", "I16": "int32", "U32": "int64", "U64": "int64"}
FLOATS = {"F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
# The elements of what is converted, as NumPy reads them; the last three are only bits to it
ELEMENTS = {
    "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "U64": "<u8", "F64": "<f8", "F32": "<f4",
    "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip
CHUNK = 1 << 18  # elements that are converted at once
OTHERS = 'safetensors.safe_open({!r}, "numpy").get_tensor(name) reads the other tensors one by one'
HEADER_LIMIT = 100_000_000  # bytes; readers of the format refuse longer ones


def save(obj: Module | Mapping[str, Any], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file, all or nothing.

    The file is written next to its final place, synced to disk and renamed, so that a crash leaves either the old file
    or the new one, never a part. The next save of the same file removes whatever a killed save left next to it.

    Parameters
    ----------
    obj : Module or mapping of str to Tensor
        A module is saved as its `state_dict`. Shapes, dtypes and memory layouts are arbitrary; devices are not stored.
        The values may also be arrays of NumPy and other libraries, such as PyTorch's parameters: floats of less than 32
        bits are stored as float32, int8 and integers of 16 bits as int32, and uint32 and uint64 as int64.
        `save_checkpoint` saves the state of an optimizer.
    path : str or os.PathLike
        A new file gets the permissions that ``open(path, "w")`` would give it. A replaced file keeps its permissions,
        and its owner and group where the system permits that; if the group cannot be kept, the group's permissions are
        limited to those of all other users. Links are followed. Devices, pipes and other special files are written to
        directly.
    metadata : mapping of str to str, optional
        Stored along with the tensors; ``load(path, metadata=True)`` returns it.

    Raises
    ------
    TypeError
        For an object, a name, a value or metadata of another type.
    ValueError
        For names and metadata that UTF-8 cannot encode or that exceed 100 MB, for a path that no file can have, and for
        one that ends in .npz or .npy.
    OSError
        If the file cannot be written, or no new file can be created in its folder. Nothing is left behind in that case.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     mg.save({"x": mg.arange(3)}, path, metadata={"epoch": "7"})
    ...     mg.load(path, metadata=True)
    ({'x': tensor([0, 1, 2])}, {'epoch': '7'})
    """
    tensors = obj.state_dict() if isinstance(obj, Module) else obj
    target = check_path("save", path)
    if target.endswith((".npz", ".npy")):  # NumPy could not read it
        advice = "np.savez(path, **{name: x.numpy() for name, x in tensors.items()}) writes NumPy's"
        raise ValueError(f"[save] expected the name of a safetensors file, got {target!r}: {advice}")
    if not isinstance(tensors, Mapping):
        hint = ": save_checkpoint(path, name=...) saves its state" if hasattr(obj, "state_dict") else ""
        raise TypeError(f"[save] expected a Module or a dict of str to Tensor, got {kind_of(obj)}{hint}")
    if not isinstance(metadata, Mapping | None):
        raise TypeError(f"[save] expected metadata of str to str, got {metadata!r}")
    for key, value in (metadata or {}).items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(f"[save] expected metadata of str to str, got {key!r}: {value!r}")
    for name in tensors:
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"[save] expected a name of type str other than '__metadata__', got {name!r}")
    order, converted = [*DTYPES.values()], {name: _as_tensor(name, value) for name, value in tensors.items()}
    ordered = sorted(converted.items(), key=lambda item: (order.index(item[1].dtype.name), item[0]))
    values = {name: value.detach() for name, value in ordered}  # a tensor may change its shape before it is written
    write(target, _content(_header(values, metadata), values))


def _as_tensor(name: str, value: Any) -> Tensor:
    if not is_array(value):
        raise TypeError(
            f"[save] expected a Tensor or an array for {name!r}, got {kind_of(value)}: save_checkpoint also saves "
            f"numbers, strings, lists and dicts, such as the state of an optimizer"
        )
    try:
        return as_tensor(value)
    except (TypeError, ValueError, BufferError) as error:
        raise TypeError(f"[save] {name!r}: {error}") from error


def _header(values: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    names = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, value in values.items():
        begin, end = end, end + value.nbytes
        header[name] = {"dtype": names[value.dtype.name], "shape": value.shape, "data_offsets": [begin, end]}
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.end]
        raise ValueError(f"[save] expected names and metadata that UTF-8 can encode, got {wrong!r} in them") from None
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise ValueError(f"[save] expected names and metadata of at most {HEADER_LIMIT:,} bytes, got {len(text):,}")
    return len(text).to_bytes(8, "little") + text


def _content(header: bytes, values: Mapping[str, Tensor]) -> Iterator[bytes | np.ndarray]:
    yield header
    for value in values.values():
        array = value.to("cpu").contiguous().numpy()
        yield array.astype(array.dtype.newbyteorder("<"), copy=False)


@overload
def load(path: Path, metadata: Literal[False] = False, *, dtype: str | DType | None = None) -> dict[str, Tensor]: ...
@overload
def load(
    path: Path, metadata: Literal[True], *, dtype: str | DType | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]: ...
def load(
    path: Path, metadata: bool = False, *, dtype: str | DType | None = None
) -> dict[str, Tensor] | tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file.

    Reading takes little more memory than the tensors themselves. The file may be a pipe, which is waited for as by
    `open`.

    Parameters
    ----------
    path : str or os.PathLike
    metadata : bool
        Whether to return the metadata as well.
    dtype : DType, optional
        float32 or float64. Floating-point tensors are converted to it, including those in float16, bfloat16 and
        float8 (E4M3, E5M2), which minigrad does not support. Of the others, int8 and integers of 16 bits become int32,
        uint32 and uint64 become int64, and the rest keep their dtypes.

    Returns
    -------
    dict of str to Tensor
        On the CPU, in the order of the file; `save` sorts by dtype and name. With `metadata`, a pair of this and a dict
        of str to str.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        If `path` is not a path, or `dtype` is not a floating-point type.
    ValueError
        For a file that is truncated or not a safetensors file, such as a PyTorch pickle, for integers from 2⁶³ up, and
        for floats of less than 32 bits without `dtype`; the message names the file, the reason and what to do.

    Examples
    --------
    >>> mg.load("absent.safetensors")
    Traceback (most recent call last):
        ...
    FileNotFoundError: [Errno 2] No such file or directory: 'absent.safetensors'
    """
    place = check_path("load", path)
    wanted = None if dtype is None else _check_dtype(dtype)
    with open(place, "rb") as file:
        start = file.peek()
        try:
            entries, stored = _entries(file)
        except (ValueError, RecursionError) as error:
            what = recognize(start, place) or f"not a complete safetensors file: {error}"
            raise ValueError(f"[load] {place} is {what}") from error
        wrong = [name for name, entry in entries.items() if entry.dtype not in {*DTYPES, *INTEGERS, *FLOATS}]
        narrow = [name for name, entry in entries.items() if entry.dtype in FLOATS]
        if wrong or (narrow and wanted is None):
            name, *others = wrong or narrow
            found = FLOATS.get(entries[name].dtype, entries[name].dtype)
            more = f" and {len(others)} more" if others else ""
            hint = OTHERS.format(place) if wrong else 'pass dtype="float32" to convert'
            raise ValueError(
                f"[load] {place}: expected float32, float64, int32, int64, uint8 or bool, got {found} for "
                f"{name!r}{more}: {hint}"
            )
        tensors = {}
        for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
            try:
                tensors[name] = _tensor(file, entry, wanted)
            except (ValueError, MemoryError) as error:
                kind = ValueError if isinstance(error, ValueError) else MemoryError
                raise kind(f"[load] {place}: {name!r} of {len(entry.shape)} axes: {error}") from error
    tensors = {name: tensors[name] for name in entries}
    return (tensors, stored) if metadata else tensors


class _Entry(NamedTuple):
    """The header's description of a tensor."""

    dtype: str
    shape: list[int]
    begin: int
    end: int


def _entries(file: BinaryIO) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Read the header: the tensors in its order, and the metadata. ValueError unless they fill the file exactly."""
    status = os.fstat(file.fileno())
    length = int.from_bytes(_read_exactly(file, 8), "little")
    if length > HEADER_LIMIT:
        absurd = length >> 40
        raise ValueError("it does not begin with the length of a header" if absurd else f"a header of {length:,} bytes")
    if stat.S_ISREG(status.st_mode) and length > status.st_size:
        raise ValueError(f"a header of {length:,} bytes in a file of {status.st_size:,}")
    text = _read_exactly(file, length).decode()
    header = json.loads(text, object_pairs_hook=_refuse_repetition, parse_constant=_refuse_constant)
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    stored = header.pop("__metadata__", None)
    stored = {} if stored is None else stored
    texts = [*stored, *stored.values()] if isinstance(stored, dict) else [stored]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected metadata of strings, got {stored!r:.200}")
    for text in (*texts, *header):
        text.encode()  # JSON can represent strings that UTF-8 cannot encode
    entries = {name: _entry(name, fields) for name, fields in header.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise ValueError(f"{name!r} begins at {entry.begin}, not {end}, where the previous tensor ends")
        end = entry.end
    if stat.S_ISREG(status.st_mode) and 8 + length + end != status.st_size:
        raise ValueError(f"the tensors end at {8 + length + end:,}, the file at {status.st_size:,} bytes")
    return entries, stored


def _refuse_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in the header")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} in the header, which is not JSON")


def _entry(name: str, fields: Any) -> _Entry:
    entry = _parse(fields)
    if entry is None:
        raise ValueError(f"the header describes {name!r} as {fields!r:.200}")
    return entry


def _parse(fields: Any) -> _Entry | None:
    """Return the fields of a tensor, or None if they do not describe one."""
    if not isinstance(fields, dict) or not {"dtype", "shape", "data_offsets"} <= fields.keys():
        return None
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not (isinstance(dtype, str) and isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2):
        return None
    if not all(type(number) is int and 0 <= number < 1 << 64 for number in (*shape, *offsets)):
        return None
    begin, end = offsets
    element = DTYPES.get(dtype, ELEMENTS.get(dtype))
    itemsize = None if element is None else np.dtype(element).itemsize
    if end < begin or (itemsize is not None and end - begin != _elements(shape) * itemsize):
        return None
    return _Entry(dtype, shape, begin, end)


def _elements(shape: list[int]) -> int:
    """Return the product of the lengths, or a partial one larger than any file: a million digits take minutes."""
    if 0 in shape:
        return 0
    count = 1
    for length in shape:
        count *= length
        if count >= 1 << 64:
            break
    return count


def _read_exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ValueError(f"it ends after {len(data):,} of {count:,} bytes")
    return data


def _check_dtype(dtype: str | DType) -> str:
    try:
        found = empty(0, dtype=dtype).dtype
    except TypeError:
        found = None
    if found is None or found.kind != "f":
        raise TypeError(f"[load] expected float32 or float64 as the dtype, got {dtype!r}")
    return found.name


def _tensor(file: BinaryIO, entry: _Entry, wanted: str | None) -> Tensor:
    """Read a tensor, converting floats to `wanted` unless that is None."""
    stored = DTYPES.get(entry.dtype)
    dtype = INTEGERS.get(entry.dtype, stored)
    if wanted is not None and (entry.dtype in FLOATS or entry.dtype in ("F32", "F64")):
        dtype = wanted
    x = empty(tuple(entry.shape), dtype=dtype)
    array = x.reshape(-1).numpy()
    if dtype != stored:
        for part in np.split(array, range(CHUNK, array.size, CHUNK)):
            with np.errstate(all="ignore"):  # a float64 may be too large for float32
                part[:] = _numbers(file, entry.dtype, part.size)
        return x
    raw = array.view(np.uint8)
    _fill(file, raw)
    if entry.dtype == "BOOL":
        np.minimum(raw, 1, out=raw)  # a 2 would be neither True nor False
    elif sys.byteorder == "big":
        array.byteswap(inplace=True)
    return x


def _numbers(file: BinaryIO, dtype: str, count: int) -> np.ndarray:
    """Read numbers that are to be converted, in a dtype of NumPy that holds them all."""
    raw = np.empty(count, ELEMENTS[dtype])
    _fill(file, raw.view(np.uint8))
    if dtype == "BF16":  # the upper half of a float32
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if dtype == "F8_E5M2":  # the upper half of a float16
        return (raw.astype(np.uint16) << 8).view(np.float16)
    if dtype == "F8_E4M3":  # the sign, four bits of the exponent and three of the fraction, without infinities
        fraction, exponent = raw % 8 / 8, raw // 8 % 16.0
        value = (fraction + (exponent > 0)) * 2 ** (np.maximum(exponent, 1) - 7)
        return np.copysign(np.where(raw % 128 == 127, np.nan, value), 0.5 - (raw >= 128))
    if dtype == "U64" and count and raw.max() >= 1 << 63:
        raise ValueError(f"expected integers below 2**63, got {raw.max()}")
    return raw


def _fill(file: BinaryIO, raw: np.ndarray) -> None:
    read = file.readinto(raw)  # type: ignore[attr-defined]
    if read < raw.size:  # the file was truncated after its size was checked, or it is a pipe
        raise ValueError(f"it ends after {read:,} of {raw.size:,} bytes")
