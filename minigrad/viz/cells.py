"""The equations of recurrent layers, for the exact variant that a tape holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from minigrad.engine.ops.recurrent import Cell
from minigrad.engine.tape.node import Op

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
    """Return the equations of a recurrent layer for every step, forward and backward.

    The record `op` has the equations without a norm. `given` says which inputs are present, by number: x, the first
    states, W_hh, its bias, weight and bias of the norm, and of the norm of the LSTM's cell state. With `lengths`,
    samples end before the last step.
    """
    names = tuple(name if k in given else "" for k, name in enumerate(op.inputs))
    norm = "LN" if cell.centered else "RMS"
    total = {None: "x_t + a_t", "state": f"x_t + {norm}(a_t)", "sum": f"{norm}(x_t + a_t)"}[cell.norm]
    forward, backward = {"rnn": _rnn, "lstm": _lstm, "gru": _gru}[cell.op](cell, norm, total)
    if 4 not in given:
        forward |= {"a_t = W_hh h_{t−1} + b": "a_t = W_hh h_{t−1}"}
        backward |= {"\ndb = Σ_t da_t": ""}
    if cell.norm == "state":
        forward |= {"contribution to step t": f"contribution to step t, with its own {norm}"}
    lines = [_with(op.forward, forward)]
    if lengths:
        lines.append("after a sample's end y_t = 0, and h_t = h_{t−1}" + ", c_t = c_{t−1}" * (cell.op == "lstm"))
    lines += _norms(cell, norm, given)
    if cell.slope:
        lines.append(f"σ(a) = {cell.slope:.4g} a + 0.5, clipped to [0, 1]")
    back = _with(op.backward, backward)
    back += _sums(
        ["dγ = Σ_t du_t â_t"] * (5 in given) + ["dβ = Σ_t du_t"] * (6 in given),
        f"the gradient du_t of {norm} and â = {_standard(cell, 'a')}",
    )
    back += _sums(["dγ_c = Σ_t dv_t ĉ_t"] * (7 in given) + ["dβ_c = Σ_t dv_t"] * (8 in given),
                  f"the gradient dv_t of {norm}_c and ĉ = {_standard(cell, 'c')}")  # fmt: skip
    paper = "; Ba, Kiros and Hinton (2016)" if cell.centered else "; Zhang and Sennrich (2019)"
    return Equation(op, names, op.outputs, "\n".join(lines), back, op.source + paper * (cell.norm is not None))


# For each operation: the phrases of its forward and of its backward equations that the variant changes
Changes = tuple[dict[str, str], dict[str, str]]


def _with(equations: str, changes: dict[str, str]) -> str:
    """Replace phrases of a record, each of which must be there once."""
    for phrase, other in changes.items():
        if equations.count(phrase) != 1:
            raise LookupError(f"{phrase!r} is not in the record once:\n{equations}")
        equations = equations.replace(phrase, other)
    return equations


def _rnn(cell: Cell, norm: str, total: str) -> Changes:
    line = f"tanh({total})" if cell.kind == "rnn_tanh" else f"max({total}, 0)"
    return {"tanh(x_t + a_t), or max(x_t + a_t, 0)": line}, {}


def _lstm(cell: Cell, norm: str, total: str) -> Changes:
    forward: dict[str, str] = {"x_t + a_t": total}
    backward: dict[str, str] = {}
    if cell.carry_norm:
        forward |= {"σ(f) c_{t−1} + σ(i) tanh(g)": f"{norm}_c(σ(f) c_{{t−1}} + σ(i) tanh(g))"}
        backward |= {"σ(f) dc_t": f"σ(f) dc_t, with dc_t brought through {norm}_c"}
    elif cell.norm_cell:
        forward |= {"tanh(c_t)": f"tanh({norm}_c(c_t))"}
    return forward, backward


def _gru(cell: Cell, norm: str, total: str) -> Changes:
    line, other = "h_t = (1 − z) n + z h_{t−1}", "h_t = (1 − z) h_{t−1} + z n"
    used, unused = (other, line) if cell.swap else (line, other)
    mine, theirs = ("paper", "torch") if cell.swap else ("torch", "paper")
    parts = f"the three parts of {norm}(a_t)" if cell.norm else "the three parts of a_t"
    forward = {
        "the three parts of a_t": parts,
        line: f"{used}\nthis is the convention {mine!r}; {theirs!r} has {unused.removeprefix('h_t = ')}",
    }
    return forward, {"z dh_t": "(1 − z) dh_t"} if cell.swap else {}


def _standard(cell: Cell, a: str) -> str:
    return f"({a} − μ) / √(σ² + ε)" if cell.centered else f"{a} / √(mean({a}²) + ε)"


def _sums(gradients: list[str], where: str) -> str:
    return f"\n{', '.join(gradients)}, with {where}" if gradients else ""


def _norms(cell: Cell, norm: str, given: Collection[int]) -> list[str]:
    if cell.norm is None:
        return []
    count = len(cell.sizes)
    many = "all columns together" if count == 1 else f"each of {count} groups of columns by itself"
    together = GROUPS.get((cell.kind, count), many)
    a, c = _standard(cell, "a"), _standard(cell, "c")
    lines = [f"{norm}(a) = {'γ ' * (5 in given)}{a}{' + β' * (6 in given)}, over {together}"]
    if cell.norm_cell:
        lines.append(f"{norm}_c(c) = {'γ_c ' * (7 in given)}{c}{' + β_c' * (8 in given)}, over the units")
    return lines
