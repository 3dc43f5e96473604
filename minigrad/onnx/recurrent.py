"""Recurrent layers in ONNX: its own operators where they compute the same, else a Scan over the steps.

ONNX's RNN, LSTM and GRU give a sample of no steps the state 0, and OpenVINO ignores their lengths if an axis is free.
They are therefore written for layers without norm and lengths. A Scan holds its weights itself and is given a mask of
the steps that count: OpenVINO refuses a body that reads outer values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ValueInfoProto, helper

from minigrad.engine.ops.recurrent import Cell
from minigrad.onnx.exporter import Exporter
from minigrad.onnx.graph import TYPES, Graph
from minigrad.onnx.trace import Step, Value

# The order of the gates in ONNX: iofc of ifgo, and zrn of rzn.
ORDERS = {"rnn": [0], "lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}
ALL = slice(None)


def rms_norm(g: Graph, z: str, axes: list[int], eps: np.ndarray, weight: Any) -> str:
    """Write x / √(mean(x²) + ε) γ."""
    root = g.Sqrt(g.Add(g.ReduceMean(g.Mul(z, z), np.array(axes), keepdims=1), eps))
    return g.Div(z, root) if weight is None else g.Mul(g.Div(z, root), weight)


def _normalized(
    g: Graph, z: str, sizes: tuple[int, ...], gamma: np.ndarray | None, beta: np.ndarray | None, eps: float,
    centered: bool, dtype: np.dtype,
) -> str:  # fmt: skip
    """Write the norm of each group of columns."""
    bounds = np.cumsum(sizes)[:-1]
    parts = [z] if len(sizes) == 1 else g.Split(z, np.array(sizes), axis=-1, outputs=len(sizes))
    gamma = np.ones(sum(sizes), dtype) if gamma is None else gamma
    gammas = np.split(gamma, bounds) if len(sizes) > 1 else [gamma]
    betas = [beta] * len(sizes) if beta is None or len(sizes) == 1 else np.split(beta, bounds)
    if centered:
        made = [
            g.LayerNormalization(part, a, *([] if b is None else [b]), axis=-1, epsilon=eps)
            for part, a, b in zip(parts, gammas, betas, strict=True)
        ]
    else:
        made = [rms_norm(g, part, [-1], np.asarray(eps, dtype), a) for part, a in zip(parts, gammas, strict=True)]
        made = [y if b is None else g.Add(y, b) for y, b in zip(made, betas, strict=True)]
    return made[0] if len(made) == 1 else g.Concat(*made, axis=-1)


def _gate(g: Graph, cell: Cell, a: str) -> str:
    return g.HardSigmoid(a, alpha=cell.slope, beta=0.5) if cell.slope else g.Sigmoid(a)


def _next(
    g: Graph, cell: Cell, x: str, of_state: Callable[[str, slice], str], states: list[str], width: int, dtype: np.dtype,
    norm_c: Callable[[str], str] | None,
) -> list[str]:  # fmt: skip
    """Write the next states from the contribution of the input.

    `of_state` writes the contribution of a state to some columns: a GRU that resets before the product has two states.
    """
    if cell.op == "rnn":
        return [g.add("Tanh" if cell.kind == "rnn_tanh" else "Relu", g.Add(x, of_state(states[0], ALL)))]
    if cell.op == "lstm":
        a = g.Add(x, of_state(states[0], ALL))
        i, f, c, o = g.Split(a, num_outputs=4, axis=-1, outputs=4)
        i, f, o = (_gate(g, cell, a) for a in (i, f, o))
        carried = g.Add(g.Mul(f, states[1]), g.Mul(i, g.Tanh(c)))
        shown = carried if norm_c is None else norm_c(carried)
        return [g.Mul(o, g.Tanh(shown)), shown if cell.carry_norm else carried]
    x_r, x_z, x_n = g.Split(x, num_outputs=3, axis=-1, outputs=3)
    count, part = (3, ALL) if cell.reset_after else (2, slice(2 * width))
    u_r, u_z, *u_n = g.Split(of_state(states[0], part), num_outputs=count, axis=-1, outputs=count)
    r, z = _gate(g, cell, g.Add(x_r, u_r)), _gate(g, cell, g.Add(x_z, u_z))
    n = g.Tanh(g.Add(x_n, g.Mul(r, *u_n) if u_n else of_state(g.Mul(r, states[0]), slice(2 * width, None))))
    keep, take = (g.Sub(np.asarray(1, dtype), z), z) if cell.swap else (z, g.Sub(np.asarray(1, dtype), z))
    return [g.Add(g.Mul(take, n), g.Mul(keep, states[0]))]


def _declare(name: str, dtype: np.dtype, ndim: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TYPES[dtype.name], [None] * ndim)


def _scan(
    g: Graph, dtype: np.dtype, states: list[str], steps: list[tuple[str, np.dtype, int]],
    write: Callable[[Graph, list[str], list[str]], tuple[list[str], str]], ndim: int = 2, **attributes: Any,
) -> list[str]:  # fmt: skip
    """Write a Scan: from the states and what each step reads (name, dtype, axes of one step) to the next and an output.

    Return the last states and the outputs of all steps.
    """
    body = g.body()
    held = [body.unique("state") for _ in states]
    read = [body.unique("step") for _ in steps]
    following, output = write(body, held, read)
    # The results of a body are other values than its inputs, and each is one value.
    following = [body.Identity(x, name="next_state") for x in following]
    output = body.Identity(output, name="result")
    inputs = [
        *(_declare(x, dtype, ndim) for x in held),
        *(_declare(x, t, n) for x, (_, t, n) in zip(read, steps, strict=True)),
    ]
    outputs = [_declare(x, dtype, ndim) for x in (*following, output)]
    made = g.Scan(
        *states, *(name for name, _, _ in steps), outputs=len(states) + 1, num_scan_inputs=len(steps),
        body=body.proto("step", inputs, outputs), **attributes,
    )  # fmt: skip
    return made


def _weights(e: Exporter, s: Step, values: list[Value | None]) -> list[np.ndarray | None]:
    """Return the elements of parameters, which the body of a Scan holds."""
    found = [None if x is None else x.constant for x in values]
    e.graph.labels.update((id(a), x.label) for a, x in zip(found, values, strict=True) if x is not None)
    if any(x is not None and a is None for x, a in zip(values, found, strict=True)):
        raise s.error("weights that do not depend on the inputs", "some that do")
    return found


def _alive(e: Exporter, x: Value, lengths: Value) -> str:
    """Write which samples have a step t: bool (T, N, 1)."""
    g = e.graph
    time = g.Unsqueeze(e.range(x.axes[0]), np.array([1]))
    return g.Unsqueeze(g.Less(time, e.name(lengths)), np.array([2]))


def recurrent(e: Exporter, s: Step) -> list[str]:
    cell, lengths, source = s.options[0], s.options[1], s.options[9:]
    x, h, c = s.inputs[:3]
    assert x is not None
    starts = [name for name in (e.name(h), e.name(c)) if name is not None]
    if source and lengths is None and cell.norm is None and not (cell.slope or cell.swap or cell.norm_cell):
        return _own_operator(e, s, cell, source, starts)
    weight, bias, gamma, beta, gamma_c, beta_c = _weights(e, s, s.inputs[3:])
    assert weight is not None
    dtype, width = x.dtype, weight.shape[1]

    def write(g: Graph, states: list[str], read: list[str]) -> tuple[list[str], str]:
        def of_state(h: str, part: slice) -> str:
            w, b, scale, shift = (p if p is None or part == ALL else p[part] for p in (weight, bias, gamma, beta))
            z = g.Gemm(h, w, *([] if b is None else [b]), transB=1)
            if cell.norm == "sum":
                z = g.Add(z, read[0])
            sizes = cell.sizes if cell.reset_after else cell.sizes[-1:] if part.start else cell.sizes[:-1]
            return _normalized(g, z, sizes, scale, shift, cell.eps, cell.centered, dtype) if cell.norm else z

        def norm_c(carried: str) -> str:
            return _normalized(g, carried, (width,), gamma_c, beta_c, cell.eps_c, cell.centered, dtype)

        share: Any = np.zeros(1, dtype) if cell.norm == "sum" else read[0]
        following = _next(g, cell, share, of_state, states, width, dtype, norm_c if cell.norm_cell else None)
        if lengths is None:
            return following, following[0]
        kept = [g.Where(read[1], new, old) for new, old in zip(following, states, strict=True)]
        return kept, g.Where(read[1], following[0], np.asarray(0, dtype))

    steps = [(e.name(x), dtype, 2)]
    if lengths is not None:
        steps.append((_alive(e, x, lengths), np.dtype(bool), 2))
    *last, outputs = _scan(e.graph, dtype, starts, steps, write)  # type: ignore[arg-type]
    return [outputs, *last]


def _own_operator(e: Exporter, s: Step, cell: Cell, source: tuple[Any, ...], starts: list[str]) -> list[str]:
    """Write ONNX's RNN, LSTM or GRU, which projects the input itself."""
    g, order = e.graph, ORDERS[cell.op]
    _, x, w_ih, b_ih, _, _ = source
    w, r, b, b_hh = _weights(e, s, [w_ih, s.inputs[3], b_ih, s.inputs[4]])
    assert w is not None
    assert r is not None

    def reordered(p: np.ndarray) -> np.ndarray:
        return np.concatenate([np.split(p, len(order))[k] for k in order])[None]

    zeros = np.zeros(len(r), r.dtype)
    biases = np.concatenate([reordered(zeros if p is None else p) for p in (b, b_hh)], axis=1)
    labels = [v.label and f"{v.label}.onnx" for v in (w_ih, s.inputs[3]) if v is not None]
    names = [g.constant(reordered(p), label) for p, label in zip((w, r), labels, strict=True)]
    begun = [g.Unsqueeze(state, np.array([0])) for state in starts]
    attributes: dict[str, Any] = {"hidden_size": r.shape[1]}
    if cell.op == "gru":
        attributes["linear_before_reset"] = int(cell.reset_after)
    if cell.op == "rnn":
        attributes["activations"] = ["Tanh" if cell.kind == "rnn_tanh" else "Relu"]
    outputs, *last = g.add(
        cell.op.upper(), e.name(x), *names, biases, None, *begun, outputs=1 + len(begun), **attributes
    )
    return [g.Squeeze(outputs, np.array([1])), *(g.Squeeze(state, np.array([0])) for state in last)]


def linear_scan(e: Exporter, s: Step) -> str:
    g, (a, b, first), (axis, reverse, _) = e.graph, s.inputs, s.options
    assert b is not None
    start = e.name(first)
    if start is None:
        start = g.Expand(np.zeros(1, b.dtype), g.Shape(g.Gather(e.name(b), np.array(0), axis=axis)))

    def write(body: Graph, states: list[str], read: list[str]) -> tuple[list[str], str]:
        found = body.Add(body.Mul(read[0], states[0]), read[1])
        return [found], found

    steps = [(e.name(x), b.dtype, b.ndim - 1) for x in (a, b)]
    back = int(reverse)
    return _scan(
        g, b.dtype, [start], steps, write, b.ndim - 1, scan_input_axes=[axis] * 2, scan_output_axes=[axis],  # type: ignore[arg-type]
        scan_input_directions=[back] * 2, scan_output_directions=[back],
    )[1]  # fmt: skip


def batch_norm(e: Exporter, s: Step) -> list[str]:
    """A layer with ``norm="batch"``: its affine maps of each step, indexed outside the Scan."""
    g, (cell, norms) = e.graph, s.options
    x, *rest = s.inputs
    assert x is not None
    states, (w_ih, w_hh, bias) = rest[:-3], _weights(e, s, rest[-3:])
    assert w_ih is not None
    assert w_hh is not None
    dtype, time = x.dtype, e.range(x.axes[0])

    def maps(name: str) -> list[str]:
        """Write scale and shift of every step, (T, 1, C)."""
        norm = norms[name]
        rows = [norm._row_of(step) for step in range(norm.max_length)]
        mean, var, gamma, beta = (
            np.array(fill) if p is None else p.detach().to("cpu").numpy().astype(np.float64)
            for p, fill in ((norm.running_mean, 0), (norm.running_var, 1), (norm.weight, 1), (norm.bias, 0))
        )
        scale = gamma / np.sqrt(var[rows] + norm.eps)
        shift = beta - mean[rows] * scale
        index = g.Min(time, np.array(norm.max_length - 1))
        return [g.Unsqueeze(g.Gather(p.astype(dtype), index, axis=0), np.array([1])) for p in (scale, shift)]

    scale, shift = maps("bn_ih")
    share = g.Add(g.Mul(g.MatMul(e.name(x), np.ascontiguousarray(w_ih.T)), scale), shift)
    share = share if bias is None else g.Add(share, bias)
    steps = [share, *maps("bn_hh"), *(maps("bn_c") if "bn_c" in norms else [])]

    def write(body: Graph, held: list[str], read: list[str]) -> tuple[list[str], str]:
        def of_state(h: str, part: slice) -> str:
            bounds = [np.array([k]) for k in part.indices(len(w_hh))[:2]]
            a, b = (p if part == ALL else body.Slice(p, *bounds, np.array([-1])) for p in read[1:3])
            return body.Add(body.Mul(body.Gemm(h, w_hh[part], transB=1), a), b)

        def norm_c(carried: str) -> str:
            return body.Add(body.Mul(carried, read[3]), read[4])

        norm = norm_c if "bn_c" in norms else None
        following = _next(body, cell, read[0], of_state, held, w_hh.shape[1], dtype, norm)
        return following, following[0]

    starts = [e.name(state) for state in states]
    *last, outputs = _scan(g, dtype, starts, [(name, dtype, 2) for name in steps], write)  # type: ignore[arg-type]
    return [outputs, *last]


TABLE: dict[str, Callable[[Exporter, Step], str | list[str]]] = {
    "gru": recurrent, "linear_scan": linear_scan, "lstm": recurrent, "recurrent_batch_norm": batch_norm,
    "rnn": recurrent,
}  # fmt: skip
