"""The list of CUDA kernels: every one, in every dtype it supports."""

import functools
import os
import shlex
import subprocess

from minigrad.cuda import launch

# These are launched as int64 for all dtypes, as they move words or make integers.
AS_INT64 = {"check_index", "check_labels", "invert_total", "take", "put", "take_along", "integers"}

# The type of uint8 in C++ is that of bool, but these compute, and so are launched for bool and numbers alone.
NOT_OF_UINT8 = {"unary", "reduce_tiles", "reduce_pieces"}


@functools.cache
def declared(file, conditions):
    """Return the kernels of a module that remain after preprocessing with these definitions."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-E", "-P", "-x", "c++", *conditions, "-"]
    text = launch.source(file)[0]
    return launch.parameters(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout)


EVERY = {
    (path.name, name, dtype)
    for path in launch.FOLDER.glob("*.cu") for dtype in launch.TYPES
    for name in declared(path.name, tuple(x for x in launch.options(dtype) if not x.startswith("-DELEMENT")))
    if (dtype == "int64" or name not in AS_INT64) and (dtype != "uint8" or name not in NOT_OF_UINT8)
}  # fmt: skip
