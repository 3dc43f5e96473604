"""How each framework stores each layer: one record for the two together."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
GATES = {"rnn": "h", "lstm": "ifgo", "gru": "rzn"}  # the order in minigrad
DIRECTIONS = {False: 0, True: 1}


class Slot(NamedTuple):
    """A layer to fill: in a recurrent module, one layer in one direction."""

    path: str
    suffix: str
    layer: Any
    kind: str

    @property
    def name(self) -> str:
        """Return the name of the slot in `names`: ``"lstm.l0_reverse"`` for one direction of one layer."""
        return ".".join(part for part in (self.path, self.suffix.lstrip("_")) if part)


class Formula(NamedTuple):
    """An array of theirs as one of minigrad's, and back."""

    to: Callable[[Array, Slot], Array]
    back: Callable[[Array, Slot], Array]


class Argument(NamedTuple):
    """An argument of theirs, by name (None if it is fixed), with its default and its value here.

    A default that depends on the layer's arrays is a function of them; a conversion to the framework passes none.
    """

    theirs: str | None
    default: Any
    value: Callable[[Any], Any] = lambda value: value


# The default of an argument that arrays alone do not say, and the value of one that says nothing.
UNSTATED: Any = object()


class Rule(NamedTuple):
    """A layer of a framework.

    `entries` maps minigrad's names to theirs, where ``{s}`` is the suffix of a recurrent layer and several names are
    parts that are concatenated; `order` is the order in which a list of weights has them. `arguments` maps minigrad's
    arguments to theirs. With `shared`, one prefix holds all layers and directions of a recurrent module. Of several
    forms of a layer, `fits` tells them apart, by the arrays and by a function that looks an argument up.
    """

    entries: Mapping[str, tuple[str | tuple[str, ...], Formula]]
    arguments: Mapping[str, Argument] = {}
    order: tuple[str, ...] = ()
    shared: bool = False
    fits: Callable[[Mapping[str, Array], Callable[[str, Any], Any]], bool] = lambda given, options: True

    def parts(self, ours: str, slot: Slot) -> list[str]:
        """Return the names of theirs that one of minigrad's consists of."""
        theirs = self.entries[ours][0]
        return [part.format(s=slot.suffix) for part in ([theirs] if isinstance(theirs, str) else theirs)]


def simple(to: Callable[[Array], Array], back: Callable[[Array], Array]) -> Formula:
    """Return a formula that does not depend on the layer."""
    return Formula(lambda a, slot: to(a), lambda a, slot: back(a))


SAME = simple(lambda a: a, lambda a: a)
TRANSPOSED = simple(lambda a: a.T, lambda a: a.T)
KERNEL_LAST = simple(  # (..., in, out)
    lambda a: np.moveaxis(a, (-1, -2), (0, 1)), lambda a: np.moveaxis(a, (0, 1), (-1, -2))
)


def _kernel_of_channels(a: Array, slot: Slot) -> Array:
    alone = slot.layer.groups == slot.layer.in_channels == a.shape[-2]
    return KERNEL_LAST.to(a.reshape(*a.shape[:-2], 1, -1) if alone else a, slot)


KERAS_KERNEL = Formula(_kernel_of_channels, KERNEL_LAST.back)  # (..., in, multiplier) in DepthwiseConv2D
CHANNELS_LAST = simple(lambda a: np.moveaxis(a, -1, 1), lambda a: np.moveaxis(a, 1, -1))  # (out, ..., in)
COLUMN = simple(lambda a: a.ravel(), lambda a: a[:, None, None])


def _heads(arrays: Mapping[str, Array]) -> Any:
    kernel = arrays.get("query.kernel")
    return UNSTATED if kernel is None or kernel.ndim < 3 else kernel.shape[1]


HEADS = Argument(None, _heads)
HEADS_IN = Formula(  # (in, heads, width)
    lambda a, slot: a.reshape(len(a), -1).T, lambda a, slot: a.T.reshape(a.shape[1], slot.layer.num_heads, -1)
)
HEADS_BIAS = Formula(lambda a, slot: a.reshape(-1), lambda a, slot: a.reshape(slot.layer.num_heads, -1))
HEADS_OUT = Formula(  # (heads, width, out)
    lambda a, slot: a.reshape(-1, a.shape[-1]).T, lambda a, slot: a.T.reshape(slot.layer.num_heads, -1, len(a))
)


def gates(order: str, transposed: bool = False, forget: float = 0.0) -> Formula:
    """Return the formula for gates in another order, `forget` of which the framework adds to the bias of f."""

    def turn(a: Array, source: str, target: str) -> Array:
        blocks = dict(zip(source, np.split(a, len(source)), strict=True))
        return np.concatenate([blocks[gate] for gate in target])

    def to(a: Array, slot: Slot) -> Array:
        found = turn(a.T if transposed else a, order, GATES[slot.kind])
        units = len(found) // len(order)
        found[units : 2 * units] += forget
        return found

    def back(a: Array, slot: Slot) -> Array:
        a = a.copy()
        a[len(a) // len(order) : 2 * len(a) // len(order)] -= forget
        found = turn(a, GATES[slot.kind], order)
        return found.T if transposed else found

    return Formula(to, back)


def row(index: int, formula: Formula) -> Formula:
    """Return the formula of one row of an array that holds several of minigrad's."""
    return Formula(lambda a, slot: formula.to(a[index], slot), formula.back)


def candidate(a: Array, slot: Slot) -> Array:
    return np.concatenate([np.zeros_like(a), np.zeros_like(a), a])


CANDIDATE = Formula(candidate, lambda a, slot: np.split(a, 3)[2])  # the only bias of the state is that of n


def onnx_gates(order: str, part: int | None = None) -> Formula:
    """Return the formula of (directions, gates units, ...), and of one half of ONNX's biases side by side."""
    inner = gates(order)

    def to(a: Array, slot: Slot) -> Array:
        a = a[DIRECTIONS[slot.suffix.endswith("_reverse")]]
        return inner.to(a if part is None else np.split(a, 2)[part], slot)

    return Formula(to, inner.back)


def arguments(eps: float | None, **more: Argument) -> dict[str, Argument]:
    """Return the arguments of a norm."""
    return {"eps": Argument("epsilon", eps), **more}


def running(momentum: float, unbiased: bool, theirs: str = "momentum") -> dict[str, Argument]:
    """Return the arguments of running statistics, where theirs is the weight of the old value."""
    old = Argument(theirs, momentum, lambda value: 1 - value)
    return {"momentum": old, "unbiased_running_var": Argument(None, unbiased)}


def affine(weight: str, bias: str) -> dict[str, tuple[str, Formula]]:
    return {"weight": (weight, SAME), "bias": (bias, SAME)}


def both(weight: str, bias: str, mean: str, var: str) -> dict[str, tuple[str, Formula]]:
    return {**affine(weight, bias), "running_mean": (mean, SAME), "running_var": (var, SAME)}


TORCH_GRU = {"convention": Argument(None, "torch"), "reset_after": Argument("reset_after", True)}
GELU = {  # what "approximate" is elsewhere
    True: "tanh", False: "none", "tanh": "tanh", "none": "none"
}  # fmt: skip


def gelu(default: Any) -> Rule:
    return Rule({}, {"approximate": Argument("approximate", default, GELU.__getitem__)})


def slope(default: float) -> Rule:
    return Rule({}, {"negative_slope": Argument("negative_slope", default)})
