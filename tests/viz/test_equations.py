"""Every operation has an equation on its page, which computes the same as the operation."""

import re
from pathlib import Path

import numpy as np
import pytest
from checks import sample
from table import ALL
from table.elementwise import ARITHMETIC, FUNCTIONS, TRIGONOMETRY

import minigrad as mg
from minigrad.engine.ops.recurrent import Cell, recurrent
from minigrad.engine.tape.inspection import contents
from minigrad.engine.tape.inspection import operations as inspected
from minigrad.engine.tape.node import operations
from minigrad.nn import functional as F
from minigrad.viz.sources import excerpt


def recorded_ops(y):
    """Return the operations in y, and in its first derivatives as functions of everything."""
    roots = [y]
    leaves = [x for x, _, _ in contents(y).values() if x is not None]
    if leaves and y.size:
        gradients = mg.grad(
            y, leaves, mg.ones(y.shape, dtype=y.dtype, requires_grad=True), create_graph=True, allow_unused=True
        )
        roots += [g for g in gradients if g is not None and g.requires_grad]
    return {
        (op.name, len(row["inputs"]), op.inputs) for root in roots
        for row, op in zip(root.tape(), inspected(root).values(), strict=True)
    }  # fmt: skip


def tensors_of(result):
    return [y for y in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(y, mg.Tensor)]


def test_records_name_every_input_of_what_is_recorded(rng):
    """All cases of the table of operations, their first derivatives, and what the table does not call."""
    found = set()
    for op in ALL:
        for case in op.cases if op.gradient else ():
            xs = [
                mg.tensor(sample(rng, shape, "float64", op.interval(k)), requires_grad=True)
                for k, shape in enumerate(case.shapes)
            ]
            options = {k: mg.tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.options.items()}
            for y in tensors_of(op(*xs, **options)):
                if y.requires_grad:
                    found |= recorded_ops(y)
    x = mg.ones((2, 2), requires_grad=True)
    parameter = mg.ones((1, 1, 2), requires_grad=True)
    for kind in ("rnn_relu", "lstm", "gru"):
        gates = {"rnn_relu": 1, "lstm": 4, "gru": 3}[kind]
        state = mg.zeros((1, 2))
        share = mg.broadcast_to(parameter, (1, 1, 2 * gates)) if gates == 1 else mg.concat([parameter] * gates, axis=2)
        y = recurrent(Cell(kind), share, state, state if kind == "lstm" else None, mg.ones((2 * gates, 2)))[0]
        found |= recorded_ops(y)
    written = x * 1
    written[0] = 5.0
    row = written[1]
    row *= 2
    (again,) = mg.grad(written * written, [x], mg.ones((2, 2)), create_graph=True)
    found |= recorded_ops(written) | recorded_ops(again)
    found |= (
        recorded_ops(F.smooth_l1_loss(x, x.detach()))
        | recorded_ops(F.mse_loss(x, x.detach()))
        | recorded_ops(F.dropout(x, 0.5))
        | recorded_ops(x.astype("float64"))
        | recorded_ops(x.copy())
        | recorded_ops(F.ctc_loss(mg.log_softmax(x * 1).reshape(2, 1, 2), mg.tensor([[1]]), [2], [1]))
    )
    images, given = mg.ones((2, 2, 2), requires_grad=True), (mg.zeros(2), mg.ones(2))
    found |= recorded_ops(F.batch_norm(images, *given)) | recorded_ops(
        F.instance_norm(images, *given, use_input_stats=False)
    )
    never = {op.name for op in operations()} - {op for op, _, _ in found}
    assert never <= {"to", "floor", "ceil", "round", "sign"}, f"nothing records: {sorted(never)}"
    for op, inputs, names in found:
        assert inputs <= len(names) or names[-1].endswith("…"), f"{op} has {inputs} inputs, of which {names} are named"


SOURCES = Path(mg.__file__).parent.parent / "cext"
NUMERIC = sorted({op.name for op in operations()} & {op.name for op in (*ARITHMETIC, *FUNCTIONS, *TRIGONOMETRY)})
NUMPY = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "sign", "sqrt", "abs", "floor")},
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "arsinh": np.arcsinh, "arcosh": np.arccosh, "artanh": np.arctanh,
    "ln": np.log, "log2": np.log2, "log10": np.log10, "ceil": np.ceil, "pi": np.pi,
}  # fmt: skip
SPELLED = {
    "eᵇ⁻ᵃ": "exp(b-a)", "eᵃ⁻ᵇ": "exp(a-b)", "eᵃ": "exp(a)", "eᵇ": "exp(b)", "eˣ": "exp(x)", "2ˣ": "(2**x)", "aᵇ⁻¹": "(a**(b-1))", "aᵇ": "(a**b)", "²": "**2", "³": "**3", "√x": "sqrt(x)", "√π": "sqrt(pi)", "√": "sqrt",
    "|x|": "abs(x)", "⌊x⌋": "floor(x)", "⌈x⌉": "ceil(x)", "⌊a / b⌋": "floor(a / b)", "−": "-", "₁₀": "10", "₂": "2",
}  # fmt: skip


def value_of(text, names):
    """Evaluate a formula of the table, in which "2 g x" and "g cos x" are products."""
    text = text.partition(",")[0]
    for sign, spelled in SPELLED.items():
        text = text.replace(sign, spelled)
    functions = "|".join(sorted(NUMPY, key=len, reverse=True))
    text = re.sub(rf"\b({functions}) (\w+)", r"\1(\2)", text)
    text = re.sub(rf"\b({functions}) \(", r"\1(", text)
    text = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", text)
    return eval(text, {"__builtins__": {}}, {**NUMPY, **names})


# words instead of a formula
WORDS = {"atan2", "copysign", "erf", "round", "trunc"}


@pytest.mark.parametrize("op", [op for op in NUMERIC if op not in WORDS])
def test_equations_compute_what_the_operation_computes(op, rng):
    """Output and gradient of each elementwise operation against the text that a reader sees."""
    equation = next(record for record in operations() if record.name == op)
    low, high = (1.1, 2) if op == "acosh" else (0.1, 0.9)
    values = {name: rng.uniform(low, high, 5) for name in equation.inputs}
    xs = [mg.tensor(value, requires_grad=True) for value in values.values()]
    y = getattr(mg, op)(*xs)
    g = rng.normal(size=5)
    names = {**values, "g": g, "y": y.detach().numpy()}
    np.testing.assert_allclose(value_of(equation.forward.removeprefix("y = "), names), names["y"], rtol=1e-12)
    lines = dict(line.split(" = ", 1) for line in equation.backward.splitlines())
    assert list(lines) == [f"d{name}" for name in equation.inputs]
    for name, gradient in zip(equation.inputs, mg.grad(y, xs, mg.tensor(g)), strict=True):
        np.testing.assert_allclose(
            value_of(lines[f"d{name}"], names) * np.ones(5), gradient.numpy(), rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize("op", operations(), ids=lambda op: f"{op.name}-{len(op.inputs)}")
def test_the_page_shows_the_record_and_its_function(op):
    """In a clone; an installed package has no cext/."""
    found = excerpt(op)
    if SOURCES.is_dir():
        assert any("operation(" in line for line in found["lines"][:12])
        shared = op.name in {"sign", "floor", "ceil", "round", "trunc"}  # no gradient
        assert any(line.startswith("cdef int ") for line in found["lines"]) != shared
        assert len(found["lines"]) < 60
    else:
        assert found is None
