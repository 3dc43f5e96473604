"""A table of a model's layers, output shapes and parameter counts."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from minigrad.arrays.creation import zeros
from minigrad.autograd import no_grad
from minigrad.engine.memory.dtype import DTypeLike, get_default_dtype
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module, check_module
from minigrad.nn.recurrent.recurrence import Recurrent

Shape = Sequence[int | None]


class Row(NamedTuple):
    """One layer: its path and class, the shape of its (first) output, and the number of its own parameters."""

    layer: str
    output_shape: tuple[int | None, ...] | None  # it is None if the layer was not called
    parameters: int
    inside: str | None = None  # the layer that computes this one within its own operations


class Summary(NamedTuple):
    """The result of `summary`; printing it gives a table.

    Attributes
    ----------
    rows : list of Row
    trainable, not_trainable : int
        Numbers of elements. Frozen parameters and persistent float buffers (running statistics) are not trainable.
    buffers : int
        How many of the elements that are not trainable are in buffers. Keras also counts these as parameters; PyTorch
        does not: its count is ``total - buffers``.
    """

    rows: list[Row]
    trainable: int
    not_trainable: int
    buffers: int

    @property
    def total(self) -> int:
        """int: the sum of `trainable` and `not_trainable`."""
        return self.trainable + self.not_trainable

    def __str__(self) -> str:
        from minigrad.tools.tables import as_text

        first, *lines = as_text(*self._cells(), right=(2,)).splitlines()
        rule = "=" * len(first)
        return "\n".join([first, rule, *lines, rule, *self._totals()])

    def _repr_html_(self) -> str:
        from minigrad.tools.tables import as_html

        return as_html(*self._cells(), right=(2,), note=" · ".join(self._totals()))

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [[row.layer, _text(row), f"{row.parameters:,}"] for row in self.rows]
        return ["Layer (type)", "Output shape", "Parameters"], rows

    def _totals(self) -> list[str]:
        statistics = f" (running statistics: {self.buffers:,})" if self.buffers else ""
        return [
            f"Total parameters: {self.total:,}",
            f"Trainable: {self.trainable:,}",
            f"Not trainable: {self.not_trainable:,}{statistics}",
        ]

    def __repr__(self) -> str:
        return str(self)


def summary(model: Module, input_shape: Shape | Tensor | Sequence[Shape | Tensor], dtype: DTypeLike = None) -> Summary:
    """Summarize the layers of a model, with their output shapes and parameter counts.

    The model is run in evaluation mode on zeros, unrecorded, and left unchanged.

    Parameters
    ----------
    model : Module
    input_shape : sequence of int or None, or Tensor
        The shape of the input, including the batch axis; None leaves a length open. For a model with several inputs,
        pass a list of shapes. If zeros are not a valid input, for example for the lengths of sequences, pass a tensor
        in place of a shape: a copy of it is the input. The other shapes must then give the batch size as a number.
    dtype : DType
        The dtype of the inputs that are zeros, by default the default dtype; int64 for a model that begins with an
        embedding.

    Returns
    -------
    Summary
        One row for each module that has its own parameters or no submodules. The norms of recurrent layers and cells
        have no output shape: the layer that contains them computes them within its own operations, and their row names
        that layer. Shared parameters are counted once in the totals.

    Raises
    ------
    TypeError
        If `model` is not a Module, or a shape does not consist of integers and None.
    ValueError
        For a negative length. Errors that the model raises for such an input are passed on.

    Examples
    --------
    >>> mg.nn.summary(mg.nn.Sequential(mg.nn.Linear(784, 10), mg.nn.Softmax()), (None, 784))
    Layer (type)  Output shape  Parameters
    ======================================
    0 (Linear)    (None, 10)         7,850
    1 (Softmax)   (None, 10)             0
    ======================================
    Total parameters: 7,850
    Trainable: 7,850
    Not trainable: 0
    """
    check_module("summary", model)
    several = (
        isinstance(input_shape, Iterable)
        and not isinstance(input_shape, Tensor)
        and any(isinstance(e, tuple | list | Tensor) for e in input_shape)
    )
    nested: Any = input_shape if several else [input_shape]
    shapes = [shape if isinstance(shape, Tensor) else _lengths(shape) for shape in nested]
    # Open lengths differ between two runs, and so do the output lengths that depend on them.
    found, other = (_trace(model, shapes, open_length, dtype) for open_length in (2, 3))
    rows: list[Row] = []
    inside: dict[int, str] = {}
    for path, module in model.named_modules():
        if isinstance(module, Recurrent) and id(module) in found:
            inside.update({id(norm): path or type(module).__name__ for norm in module._norms_inside()})
        own = sum(parameter.size for parameter in module.parameters(recurse=False)) + _statistics(module, recurse=False)
        if own or not any(module.children()):
            name = f"{path} ({type(module).__name__})" if path else type(module).__name__
            output = _merge(found.get(id(module)), other.get(id(module)))
            rows.append(Row(name, output, own, inside.get(id(module)) if output is None else None))
    trainable = sum(parameter.size for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.size for parameter in model.parameters() if not parameter.requires_grad)
    buffers = _statistics(model, recurse=True)
    return Summary(rows, trainable, frozen + buffers, buffers)


def _lengths(shape: Any) -> tuple[int | None, ...]:
    if not isinstance(shape, Iterable):
        raise TypeError(f"[summary] expected a shape of integers and None, got {shape!r}")
    lengths = tuple(None if n is None else integer("summary", "length", n) for n in shape)
    if any(n is not None and n < 0 for n in lengths):
        raise ValueError(f"[summary] expected lengths of 0 or more, or None, got {lengths}")
    return lengths


def _trace(
    model: Module, shapes: Sequence[Shape | Tensor], open_length: int, dtype: DTypeLike
) -> dict[int, tuple[int, ...]]:
    """Return the shape of each module's first output in its first call, by the module's id."""
    found: dict[int, tuple[int, ...]] = {}

    def note(module: Module, args: tuple[Any, ...], output: Any) -> None:
        while isinstance(output, tuple | list) and output:
            output = output[0]
        if isinstance(output, Tensor):
            found.setdefault(id(module), output.shape)

    modes = [(module, module.training) for module in model.modules()]
    handles = [module.register_forward_hook(note) for module, _ in modes]
    device = next((parameter.device for parameter in model.parameters()), None)
    try:
        with no_grad():
            inputs = [
                shape.copy() if isinstance(shape, Tensor) else
                zeros(tuple(open_length if n is None else n for n in shape), dtype=dtype, device=device)
                for shape in shapes
            ]  # fmt: skip
            model.eval()(*inputs)
    except TypeError as error:
        if dtype is None and "integer" in str(error) and not all(isinstance(shape, Tensor) for shape in shapes):
            raise TypeError(
                f'[summary] expected a tensor of indices in place of a shape, or dtype="int64", since zeros are '
                f"{get_default_dtype()}: {error}"
            ) from error
        raise
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    return found


def _statistics(module: Module, recurse: bool) -> int:
    """Count the elements of persistent float buffers."""
    modules = module.modules() if recurse else [module]
    names = [(owner, name) for owner in modules for name, persistent in owner._buffers.items() if persistent]
    buffers = {id(getattr(owner, name)): getattr(owner, name) for owner, name in names}
    return sum(buffer.size for buffer in buffers.values() if buffer is not None and buffer.dtype.kind == "f")


def _merge(shape: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int | None, ...] | None:
    if shape is None or other is None:
        return None
    return tuple(a if a == b else None for a, b in zip(shape, other, strict=True))


def _text(row: Row) -> str:
    if row.output_shape is not None:
        return str(row.output_shape)
    return "not called" if row.inside is None else f"inside {row.inside}"
