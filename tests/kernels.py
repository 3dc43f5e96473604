"""The CUDA kernels that there are: every one in every dtype that it is written for."""

import functools
import os
import shlex
import subprocess

from minigrad.cuda import launch

# Whatever the dtype of a tensor, these are started as int64: they move words, or make integers.
AS_INT64 = {"check_index", "check_labels", "invert_total", "take", "put", "take_along", "integers"}


@functools.cache
def declared(file, conditions):
    """The kernels of a module that the preprocessor leaves under these definitions."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-E", "-P", "-x", "c++", *conditions, "-"]
    text = launch.source(file)[0]
    return launch.parameters(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout)


EVERY = {
    (path.name, name, dtype)
    for path in launch.FOLDER.glob("*.cu") for dtype in launch.TYPES
    for name in declared(path.name, tuple(x for x in launch.options(dtype) if not x.startswith("-DELEMENT")))
    if dtype == "int64" or name not in AS_INT64
}  # fmt: skip
