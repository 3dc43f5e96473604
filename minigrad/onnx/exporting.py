"""Export: runs a module at several sizes, writes what it computes as an ONNX model."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from minigrad._version import __version__
from minigrad.arrays.creation import tensor
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tensor.tensor import Tensor
from minigrad.engine.tensor.trees import leaves, map_tensors
from minigrad.nn.module import Module
from minigrad.onnx.exporter import Exporter
from minigrad.onnx.graph import Free, info
from minigrad.onnx.table import TABLE
from minigrad.onnx.trace import Trace, trace
from minigrad.tools.files import check_path, write

IR = {20: 10, 23: 11}  # what onnxruntime and other tools of that opset's time read
Dynamic = Mapping[str, Mapping[int, str]]


def export(module: Module, example: Any, path: Any, dynamic: Dynamic | None, opset: int) -> None:
    """See `minigrad.onnx.export`."""
    if not isinstance(module, Module):
        raise TypeError(f"[onnx.export] expected a Module, got {kind_of(module)}")
    if opset not in IR:
        raise ValueError(f"[onnx.export] expected opset {' or '.join(map(str, IR))}, got {opset!r}")
    path = check_path("onnx.export", path)
    args, kwargs = (
        ((), example) if isinstance(example, dict) else (example if type(example) is tuple else (example,), {})
    )
    arguments = _arguments(module, args, kwargs)
    inputs = _inputs(arguments)
    places = _free_axes(inputs, {} if dynamic is None else dynamic)
    free = list({id(axis): axis for axes in places.values() for axis in axes.values()}.values())
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        runs = []
        for k in range(3):
            tensors = [_varied(x.detach(), places[name], k) for name, x in inputs.items()]
            given = map_tensors(_each_of(tensors), arguments)
            values = list(given.values())[: len(args)]
            runs.append((tensors, tuple(values), {name: given[name] for name in list(given)[len(args) :]}))
        found, result = trace(module, runs, [*module.named_parameters(), *module.named_buffers()])
        exporter = Exporter(opset, free)
        exporter.emit(found, list(inputs), TABLE)
    except Exception as error:
        if free:
            sizes = ", ".join(f"{axis.name} = {', '.join(map(str, axis.sizes))}" for axis in free)
            error.add_note(f"onnx.export ran the module with its free axes at these lengths: {sizes}")
        raise
    finally:
        for part, training in modes:
            part.training = training
    write(path, [_model(exporter, found, inputs, isinstance(result, Tensor)).SerializeToString()])


def _arguments(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments by name, with NumPy arrays as tensors; the positional ones come first."""
    parameters = inspect.signature(module.forward).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names += [f"input_{k}" for k in range(len(names), len(args))]
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: tensor(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}


def _inputs(arguments: dict[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among the arguments, with the names of the graph's inputs."""
    found = {}
    for name, value in arguments.items():
        tensors = [x for x in leaves(value) if isinstance(x, Tensor)]
        found.update({name if isinstance(value, Tensor) else f"{name}_{k}": x for k, x in enumerate(tensors)})
    if not found:
        raise TypeError("[onnx.export] expected a tensor among the example's arguments, got none")
    return found


def _free_axes(inputs: dict[str, Tensor], dynamic: Dynamic) -> dict[str, dict[int, Free]]:
    """Return the free axes of each input; those of one name are one axis."""
    found: dict[str, Free] = {}
    places: dict[str, dict[int, Free]] = {name: {} for name in inputs}
    if not isinstance(dynamic, Mapping) or not all(isinstance(axes, Mapping) for axes in dynamic.values()):
        raise TypeError(f"[onnx.export] expected dynamic as in {{'x': {{0: 'N'}}}}, got {dynamic!r}")
    for name, axes in dynamic.items():
        if name not in inputs:
            raise ValueError(f"[onnx.export] expected dynamic to name inputs ({', '.join(inputs)}), got {name!r}")
        shape = inputs[name].shape
        for axis, free in axes.items():
            if not isinstance(axis, int) or not 0 <= axis < len(shape) or not isinstance(free, str):
                raise ValueError(
                    f"[onnx.export] expected dynamic to name axes from 0 to {len(shape) - 1} of {name}, as in "
                    f'{{"{name}": {{0: "N"}}}}, got {axes!r}'
                )
            n, k = shape[axis], len(found)
            if n == 0:
                raise ValueError(f"[onnx.export] expected an example with elements, got {name} of shape {shape}")
            first = n if n > 1 else 2 + k  # an axis of length 1 broadcasts, which another length does not
            sizes = (first, n + 3 + 2 * k, n + 8 + 5 * k)
            places[name][axis] = found.setdefault(free, Free(free, sizes, name, axis))
            given = inputs[found[free].source].shape[found[free].axis]
            if given != n:
                raise ValueError(
                    f"[onnx.export] expected axes named {free!r} of one length, got {given} in "
                    f"{found[free].source} and {n} in {name}"
                )
    return places


def _each_of(tensors: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function that returns the tensors in turn."""
    left = iter(tensors)
    return lambda _: next(left)


def _varied(x: Tensor, free: dict[int, Free], k: int) -> Tensor:
    """Return the input of run k: a copy of x, and in later runs other values, in free axes more of them."""
    a, rng = x.to("cpu").numpy(), np.random.default_rng(k)
    a = a[np.ix_(*[np.arange(free[i].sizes[k] if i in free else n) % n for i, n in enumerate(a.shape)])]
    if k == 0:
        pass
    elif a.dtype.kind == "f":
        a = (a * rng.uniform(0.9, 1.1, a.shape) + rng.uniform(0, 0.1, a.shape)).astype(a.dtype)
    elif a.size:
        a = np.roll(a, k)  # the same values in other places, and one that occurs as rarely as possible
        place = np.unravel_index(a.argmax(), a.shape)
        a[place] = not a[place] if a.dtype == bool else max(a[place] - 1, 0)
    return tensor(a, device=x.device)


def _model(e: Exporter, found: Trace, inputs: dict[str, Tensor], single: bool) -> onnx.ModelProto:
    taken, outputs = set(inputs), []
    for k, value in enumerate(found.outputs):
        name, wanted = e.name(value), e.graph.unique("output" if single else f"output_{k}")
        assert name is not None
        if name in taken or name in e.graph.constants:
            e.graph.nodes.append(helper.make_node("Identity", [name], [wanted]))
        else:
            for node in e.graph.nodes:
                for names in (node.input, node.output):
                    names[:] = [wanted if x == name else x for x in names]
            e.names[id(value)] = wanted
        taken.add(wanted)
        outputs.append(info(wanted, value, e.sizes.free))
    given = [info(name, value, e.sizes.free) for name, value in zip(inputs, found.inputs, strict=True)]
    model = helper.make_model(
        e.graph.proto("minigrad", given, outputs), opset_imports=[helper.make_opsetid("", e.opset)],
        ir_version=IR[e.opset], producer_name="minigrad", producer_version=__version__,
    )  # fmt: skip
    onnx.checker.check_model(model)
    return model
