"""The public names, each with the object."""

import inspect

import minigrad as mg
from minigrad.nn import functional


def public(module, prefix):
    """Return (name, object) of a module's own names, except modules, data types and imports for internal use."""
    for name in sorted(dir(module)):
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value)):
            yield prefix + name, value


NAMES = {
    **dict(public(mg, "")),
    **dict(public(mg.random, "random.")),
    **{f"functional.{name}": getattr(functional, name) for name in functional.__all__},
    **{f"linalg.{name}": getattr(mg.linalg, name) for name in mg.linalg.__all__},
    **{f"convert.{name}": getattr(mg.convert, name) for name in mg.convert.__all__},
    **{f"distributed.{name}": getattr(mg.distributed, name) for name in mg.distributed.__all__},
    **{f"learn.{name}": value for name, value in public(mg.learn, "") if name in mg.learn.__all__ and name != "Report"},
    **{f"cuda.{name}": getattr(mg.cuda, name) for name in mg.cuda.__all__},
    **{f"Tensor.{name}": getattr(mg.Tensor, name) for name in ("backward", "numpy")},
    "__array_namespace_info__": mg.__array_namespace_info__,
    "profile.trace": mg.profile.trace,
}
