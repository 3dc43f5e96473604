"""How errors describe values, and the errors for data that cannot become an array."""
import sys

from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.calls import current_call
from minigrad.engine.memory.dtype cimport EXPECTED
from minigrad.engine.memory.shapes cimport MAX_NDIM


cpdef str kind_of(x: Any):
    """Describe x for an error: the name of its type, with its package if another library's type has the name of one of
    ours (torch.Tensor); of a tuple or list that holds tensors, also where it has one."""
    cdef str tensors = shown_tensors(x), name = type(x).__name__
    if tensors is not None:
        return tensors
    if isinstance(x, Array) or name not in ("Tensor", "Parameter"):
        return name
    return f"{type(x).__module__.partition('.')[0]}.{name}"


cdef str place_of_tensor(object data, int depth=0):
    """Where the first tensor in nested lists and tuples is, such as "[0][1]"; None if there is none."""
    cdef Py_ssize_t i = 0
    if isinstance(data, (list, tuple)) and depth <= MAX_NDIM:
        for item in data:
            place = "" if isinstance(item, Array) else place_of_tensor(item, depth + 1)
            if place is not None:
                return f"[{i}]{place}"
            i += 1
    return None


cdef str shown_tensors(object data):
    """A list or tuple that holds tensors, as an error shows it; None for anything else."""
    place = place_of_tensor(data)
    if place is None:
        return None
    first = ", ".join([type(item).__name__ for item in data[:4]])
    return f"{type(data).__name__} ({first}{', ...' if len(data) > 4 else ''}), whose {place} is one"


cdef object uninitialized(str op, Array x):
    """The error for a tensor whose class has an __init__ that did not call Tensor's."""
    return TypeError(f"[{op}] expected a tensor, got a {type(x).__name__} whose __init__ did not call Tensor's")


cdef object must_copy(str op, object data):
    """The error for data whose memory cannot be used as it is, although that was asked for."""
    return ValueError(f"[{op}] expected memory that can be shared, for copy=False, got {type(data).__name__}: "
                      f"copy=None copies where that is necessary")


cdef object unsupported(str op, str got, bint here=True):
    """The error for numbers of a dtype that minigrad lacks, in memory that can be converted here or not."""
    way = "" if "complex" in got else ": convert it first, as x.float() or x.astype('float32') does"
    return TypeError(f"[{op}] expected {EXPECTED}, got {got}{way}"
                     f"{", or use mg.asarray(x, dtype='float32')" if here else ''}")


cpdef object undefined(str op, dtype: DType | str):  # -> TypeError
    """The error for an operation that a dtype lacks; it names the operation that called the primitive `op`, if any."""
    call = current_call()
    return TypeError(f"[{op if call is None else call[1]}] not defined for {dtype}: convert it first, as "
                     f"x.astype('{'float32' if str(dtype) == 'uint8' else 'int64'}') does")


cdef str place_of_copy():
    """The attribute that `copy.deepcopy` has come to, as text: it copies the dict of one object after another."""
    names, frame = [], sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") == "copy":
        if frame.f_code.co_name == "_deepcopy_dict":
            names.append(str(frame.f_locals.get("key")))
        frame = frame.f_back
    return f", the attribute {'.'.join(reversed(names))}," if names else ""
