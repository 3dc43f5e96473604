"""The compiled engine: arrays, the tape, the backends and the operations (sources in cext/)."""

try:
    import minigrad.engine.memory.dtype
except ModuleNotFoundError as error:
    if error.name != "minigrad.engine.memory.dtype":
        raise
    raise ModuleNotFoundError(
        f"[minigrad] {__path__[0]} holds the source without the compiled part: run from another folder if minigrad is "
        f"installed, or compile it here with `pip install -e .`",
        name=error.name,
    ) from None

import minigrad.engine.tensor.pytorch_names  # first, as Tensor and other modules import the functions that it changes
