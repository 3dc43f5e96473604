"""The equations of recurrent layers, for the exact variant that a tape holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from minigrad.engine.ops.recurrent import Cell
from minigrad.engine.tape import Op

# GRU: the new state, depending on which of the two z weighs
UPDATES = {False: "(1 − z) n + z h_{t−1}", True: "(1 − z) h_{t−1} + z n"}
CONVENTIONS = {False: "torch", True: "paper"}
# Which gates are normalized together
GROUPS = {("gru", 2): "r and z together, n by itself", ("lstm", 4): "each of i, f, g, o by itself"}


class Equation(NamedTuple):
    """The record `op` of a recurrent layer, written out for one variant of it."""

    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forward: str
    backward: str
    source: str


def equation_of_cell(op: Op, cell: Cell, given: Collection[int], lengths: bool = False) -> Equation:
    """The equations of a recurrent layer for every step, forward and backward.

    Parameters
    ----------
    op : Op
        The record of the layer.
    cell : Cell
        The kind and the variant: what is normalized, the GRU's convention, hard gates.
    given : collection of int
        Which inputs are present: x, the first states, W_hh, its bias, the weight and bias of the norm, and those of the
        norm of the LSTM's cell state. The others get no name.
    lengths : bool
        Whether samples end before the last step.
    """
    kind = cell.kind.partition("_")[0]
    names = tuple(name if k in given else "" for k, name in enumerate(op.inputs))
    states = "h₀, c₀: the states before the first step" if kind == "lstm" else "h₀: the state before the first step"
    ends = "after a sample's end y_t = 0, and h_t = h_{t−1}" + (", c_t = c_{t−1}" if kind == "lstm" else "")
    bias = " + b" if 4 in given else ""
    product = f"a_t = W_hh h_{{t−1}}{bias}"
    share = "x_t = the input's contribution to step t" + (
        f", with its own {_name(cell)}" if cell.norm == "state" else ""
    )
    step, through, past = {"rnn": _rnn, "lstm": _lstm, "gru": _gru}[kind](cell)
    forward = [states, share, product, *step, "y = h₁ … h_T", *[ends] * lengths, *_norms(cell, given), *_gates(cell)]
    backward = [
        "dh_t = dy_t + what step t + 1 sends back; after the last step the gradient of h_T",
        *through, "da_t, dx_t = the gradients of a_t and of x_t", f"dh_{{t−1}} = da_t W_hh{past}",
        "dW_hh = Σ_t da_tᵀ h_{t−1}",
    ]  # fmt: skip
    backward += ["db = Σ_t da_t"] if bias else []
    affine = f"dγ = Σ_t du_t â_t, dβ = Σ_t du_t, with the gradient du_t of {_name(cell)} and â = {_standard(cell, 'a')}"
    backward += [affine] if 5 in given else []
    norm = "; Ba, Kiros and Hinton (2016)" if cell.centered else "; Zhang and Sennrich (2019)"
    source = op.source + norm * (cell.norm is not None)
    return Equation(op, names, op.outputs, "\n".join(forward), "\n".join(backward), source)


# For each kind: the forward lines of a step, its backward lines, and the part of dh that bypasses W_hh.
Step = tuple[list[str], list[str], str]


def _name(cell: Cell) -> str:
    return "LN" if cell.centered else "RMS"


def _standard(cell: Cell, a: str) -> str:
    return f"({a} − μ) / √(σ² + ε)" if cell.centered else f"{a} / √(mean({a}²) + ε)"


def _sum(cell: Cell) -> str:
    norm = _name(cell)
    return {None: "x_t + a_t", "state": f"x_t + {norm}(a_t)", "sum": f"{norm}(x_t + a_t)"}[cell.norm]


def _rnn(cell: Cell) -> Step:
    line = f"h_t = tanh({_sum(cell)})" if cell.kind == "rnn_tanh" else f"h_t = max({_sum(cell)}, 0)"
    return [line], [], ""


def _lstm(cell: Cell) -> Step:
    state, norm = "σ(f) c_{t−1} + σ(i) tanh(g)", f"{_name(cell)}_c"
    forward = [
        f"(i, f, g, o) = the four parts of {_sum(cell)}",
        f"c_t = {norm}({state})" if cell.carry_norm else f"c_t = {state}",
        f"h_t = σ(o) tanh({norm}(c_t))" if cell.norm_cell and not cell.carry_norm else "h_t = σ(o) tanh(c_t)",
    ]
    backward = [
        "dc_t = the gradient through h_t + what step t + 1 sends back",
        "dc_{t−1} = σ(f) dc_t" + (f", with dc_t brought through {norm}" if cell.carry_norm else ""),
    ]
    return forward, backward, ""


def _gru(cell: Cell) -> Step:
    used, other = UPDATES[cell.swap], UPDATES[not cell.swap]
    forward = [
        "(x_r, x_z, x_n) = the three parts of x_t",
        f"(u_r, u_z, u_n) = the three parts of {f'{_name(cell)}(a_t)' if cell.norm else 'a_t'}",
        "r = σ(x_r + u_r)",
        "z = σ(x_z + u_z)",
        "n = tanh(x_n + r u_n)",
        f"h_t = {used}",
        f"this is the convention {CONVENTIONS[cell.swap]!r}; {CONVENTIONS[not cell.swap]!r} has {other}",
    ]
    return forward, [], " + (1 − z) dh_t" if cell.swap else " + z dh_t"


def _norms(cell: Cell, given: Collection[int]) -> list[str]:
    if cell.norm is None:
        return []
    count = len(cell.sizes)
    many = "all columns together" if count == 1 else f"each of {count} groups of columns by itself"
    together = GROUPS.get((cell.kind, count), many)
    name, a, c = _name(cell), _standard(cell, "a"), _standard(cell, "c")
    lines = [f"{name}(a) = {'γ ' * (5 in given)}{a}{' + β' * (6 in given)}, over {together}"]
    if cell.norm_cell:
        lines.append(f"{name}_c(c) = {'γ_c ' * (7 in given)}{c}{' + β_c' * (8 in given)}, over the units")
    return lines


def _gates(cell: Cell) -> list[str]:
    return [f"σ(a) = {cell.slope:.4g} a + 0.5, clipped to [0, 1]"] if cell.slope else []
