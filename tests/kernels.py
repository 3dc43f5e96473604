"""The CUDA kernels that there are: every one in every dtype that it is written for."""

import os
import shlex
import subprocess

from minigrad.cuda import launch

# Whatever the dtype of a tensor, these are started as int64: they move words, or make integers.
AS_INT64 = {"check_index", "check_labels", "invert_total", "take", "put", "take_along", "integers"}


def declared(file, dtype):
    """The kernels of a module that the preprocessor leaves for a dtype."""
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-E", "-P", "-x", "c++", *launch.options(dtype), "-"]
    text = launch.source(file)[0]
    return launch.parameters(subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout)


EVERY = {
    (path.name, name, dtype)
    for path in launch.FOLDER.glob("*.cu") for dtype in launch.TYPES for name in declared(path.name, dtype)
    if dtype == "int64" or name not in AS_INT64
}  # fmt: skip
