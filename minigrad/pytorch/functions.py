"""The functions of `minigrad` with PyTorch's names, and at the end two functions of other modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minigrad import namespace as mg
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.join import concat
from minigrad.engine.tape.node import set_recording
from minigrad.engine.tensor.tensor import Tensor
from minigrad.pytorch.methods import TensorNames, _lengths, _with_axis
from minigrad.pytorch.storage import StorageNames

allclose = TensorNames.allclose
amax = TensorNames.amax
amin = TensorNames.amin
argwhere = TensorNames.argwhere
bernoulli = StorageNames.bernoulli
bmm = TensorNames.bmm
chunk = TensorNames.chunk
clamp = TensorNames.clamp
clone = StorageNames.clone
cumprod = TensorNames.cumprod
cumsum = TensorNames.cumsum
div = TensorNames.div
dot = TensorNames.dot
eq = TensorNames.eq
erfc = TensorNames.erfc
flatten = TensorNames.flatten
gather = TensorNames.gather
ge = TensorNames.ge
gt = TensorNames.gt
index_add = StorageNames.index_add
index_select = TensorNames.index_select
is_floating_point = StorageNames.is_floating_point
isclose = TensorNames.isclose
le = TensorNames.le
lerp = TensorNames.lerp
logit = TensorNames.logit
lt = TensorNames.lt
masked_fill = TensorNames.masked_fill
masked_select = TensorNames.masked_select
mm = TensorNames.mm
movedim = TensorNames.movedim
mul = TensorNames.mul
multinomial = StorageNames.multinomial
mv = TensorNames.mv
narrow = TensorNames.narrow
ne = TensorNames.ne
neg = TensorNames.neg
norm = TensorNames.norm
numel = StorageNames.numel
permute = TensorNames.permute
repeat_interleave = TensorNames.repeat_interleave
scatter = StorageNames.scatter
select = TensorNames.select
sgn = TensorNames.sgn
split_with_sizes = TensorNames.split_with_sizes
sub = TensorNames.sub
swapdims = TensorNames.swapdims
t = TensorNames.t
topk = TensorNames.topk
unbind = TensorNames.unbind
unflatten = TensorNames.unflatten
unique = TensorNames.unique
unsqueeze = TensorNames.unsqueeze


if TYPE_CHECKING:
    cat = concatenate = concat
else:

    @_with_axis
    def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """PyTorch's name for `concat`."""
        return mg.concat(tensors, dim)

    @_with_axis
    def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
        """PyTorch's name for `concat`."""
        return mg.concat(tensors, dim)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """PyTorch's name for a `concat` along axis 1, or of vectors along axis 0."""
    return mg.concat(tensors, 0 if all(x.ndim == 1 for x in tensors) else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """PyTorch's name for a `concat` along axis 0, in which a vector is a row."""
    return mg.concat([x.expand_dims(0) if x.ndim == 1 else x for x in tensors], 0)


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """PyTorch's name for `outer`."""
    return mg.outer(input, vec2)


def as_tensor(data: Any, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """PyTorch's name for `asarray`."""
    return mg.asarray(data, dtype, device)


def from_numpy(ndarray: Any) -> Tensor:
    """PyTorch's name for ``mg.asarray(array)``, which shares the array's memory."""
    return mg.asarray(ndarray)


def is_tensor(obj: Any) -> bool:
    """PyTorch's name for ``isinstance(obj, mg.Tensor)``."""
    return isinstance(obj, Tensor)


def rand(
    *size: int | Sequence[int], dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """PyTorch's name for ``mg.random.uniform(shape=size)``."""
    x = mg.random.uniform(shape=_lengths(size), dtype=dtype, device=device)
    return x.requires_grad_(requires_grad)


def randn(
    *size: int | Sequence[int], dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """PyTorch's name for ``mg.random.normal(shape=size)``."""
    x = mg.random.normal(shape=_lengths(size), dtype=dtype, device=device)
    return x.requires_grad_(requires_grad)


def randint(low: int, high: Any, size: Any = None, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """PyTorch's name for ``mg.random.randint(low, high, size)``; ``(high, size)`` begins at 0."""
    if size is None:
        low, high, size = 0, low, high
    x = mg.random.randint(low, high, tuple(size), device=device)
    return x if dtype is None else mg.astype(x, dtype)


def randperm(n: int, *, device: str | None = None) -> Tensor:
    """PyTorch's name for ``mg.random.permutation(n)``."""
    return mg.random.permutation(n, device=device)


def rand_like(input: Tensor, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """PyTorch's name for ``mg.random.uniform(shape=x.shape)``, with the dtype and device of x."""
    return rand(*input.shape, dtype=dtype or input.dtype, device=device or input.device)


def randn_like(input: Tensor, *, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """PyTorch's name for ``mg.random.normal(shape=x.shape)``, with the dtype and device of x."""
    return randn(*input.shape, dtype=dtype or input.dtype, device=device or input.device)


def normal(mean: float, std: float, size: Sequence[int]) -> Tensor:
    """PyTorch's name for ``mg.random.normal(mean, std, size)``."""
    return mg.random.normal(mean, std, tuple(size))


class set_grad_enabled:
    """PyTorch's name for `enable_grad` or `no_grad` by an argument: from the call on, or for a block or a function."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.before = set_recording(self.mode)

    def __call__(self, function: Any) -> Any:
        """Decorate a function, and leave the mode around it as it was."""
        set_recording(self.before)
        return (mg.enable_grad() if self.mode else mg.no_grad())(function)

    def __enter__(self) -> None:
        """Do nothing: the call itself has set the mode."""

    def __exit__(self, *error: object) -> None:
        set_recording(self.before)


def inference_mode(mode: Any = True) -> Any:
    """PyTorch's name for `no_grad`; its results may be used in a computation that is recorded."""
    if callable(mode):  # @inference_mode, without parentheses
        return mg.no_grad()(mode)
    return mg.no_grad() if mode else set_grad_enabled(mg.is_grad_enabled())


def device(type: str, index: int | None = None) -> str:
    """PyTorch's name for a string: here a device is "cpu", "cuda" or "cuda:1"."""
    name = str(type) if index is None else f"{type}:{index}"
    mg.empty(0, device=name)
    return name


# ── functions of minigrad.autograd ────────────────────────────────────────────────────────────────


def autograd_grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    only_inputs: bool = True, allow_unused: bool | None = None, *, materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """PyTorch's name for `minigrad.grad`, whose result is here always a tuple."""
    if not only_inputs:
        raise TypeError("[grad] expected only_inputs=True, got False; y.backward() writes the gradients of all leaves")
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    found: tuple[Tensor | None, ...] = mg.grad(
        outputs, inputs, grad_outputs, retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph, allow_unused=allow_unused or materialize_grads,
    )  # fmt: skip
    if materialize_grads:
        found = tuple(mg.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))
    return found


# ── functions of minigrad.nn.functional ───────────────────────────────────────────────────────────


def functional_pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """PyTorch's name for `minigrad.pad`, with the widths of the last axis first; a negative width removes elements."""
    if not hasattr(x, "ndim"):
        raise TypeError(f"[pad] expected a tensor, got {kind_of(x)}")
    widths = [integer("pad", "width", n) for n in pad]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ValueError(f"[pad] expected a pair of widths for at most {x.ndim} axes, got {tuple(pad)}")
    if mode not in modes:
        raise ValueError(f"[pad] expected mode {', '.join(map(repr, modes))}, got {mode!r}")
    around = [(0, 0)] * x.ndim
    for k in range(len(widths) // 2):
        axis, (before, after) = x.ndim - 1 - k, widths[2 * k : 2 * k + 2]
        around[axis] = max(before, 0), max(after, 0)
        if before < 0 or after < 0:
            x = x.narrow(axis, max(-before, 0), x.shape[axis] + min(before, 0) + min(after, 0))
    return mg.pad(x, around, modes[mode], value=value or 0)
