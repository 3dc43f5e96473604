"""All steps of a recurrent layer in one operation: against its composition, in every variant."""

import itertools

import numpy as np
import pytest
from checks import array, equals, near, raises, refuses
from threaded import same_for_all_threads

import minigrad as mg
from minigrad.engine.ops.recurrent import Cell, Lengths, composition, recurrent

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}
LENGTHS = {"whole": None, "lengths": [3, 0, 5, 1, 2, 5, 4, 5, 0]}


def cells(n):
    """Return every kind of cell with every norm and variant, for n units."""
    for kind in ("rnn_tanh", "rnn_relu"):
        yield from (Cell(kind), Cell(kind, "sum", (n,)), Cell(kind, "state", (n,)))
    for norm, norm_cell, carry in itertools.product(
        [(None, ()), ("state", (4 * n,)), ("state", (n,) * 4), ("sum", (n,) * 4)], [False, True], [False, True]
    ):
        if norm_cell or not carry:
            yield Cell("lstm", *norm, norm_cell=norm_cell, carry_norm=carry, slope=0.2 if carry else 0.0)
    for norm, swap in itertools.product([(None, ()), ("state", (2 * n, n))], [False, True]):
        yield Cell("gru", *norm, swap=swap, slope=1 / 6 if swap else 0.0)
    yield Cell("rnn_tanh", "sum", (n,), centered=False)
    yield Cell("lstm", "state", (4 * n,), norm_cell=True, centered=False)
    yield Cell("lstm", "sum", (n,) * 4, norm_cell=True, carry_norm=True, centered=False)
    yield Cell("gru", "state", (2 * n, n), centered=False)
    yield Cell("gru", reset_after=False)
    yield Cell("gru", "state", (2 * n, n), swap=True, slope=0.2, reset_after=False)


def name(cell):
    flags = cell.norm_cell, cell.carry_norm, cell.swap, cell.centered, cell.reset_after
    return f"{cell.kind}-{cell.norm}-{len(cell.sizes)}-{''.join(str(int(flag)) for flag in flags)}"


def operands(cell, T, N, H, seed=0, dtype="float64", affine=True, bias=True, device="cpu"):
    """Return x, h, c, weight, bias, gamma, beta, gamma_c, beta_c, standard normal, or None if the cell has none."""
    rng, columns = np.random.default_rng(seed), GATES[cell.kind] * H
    shapes = [(T, N, columns), (N, H), (N, H) if cell.kind == "lstm" else None, (columns, H),
              (columns,) if bias else None, *[(columns,) if cell.norm and affine else None] * 2,
              *[(H,) if cell.norm_cell and affine else None] * 2]  # fmt: skip
    return [None if shape is None else mg.tensor(rng.standard_normal(shape), dtype=dtype, device=device, requires_grad=True)
            for shape in shapes]  # fmt: skip


def on(device, inputs):
    """Return leaves with the same values on a device."""
    return [None if x is None else x.detach().to(device).requires_grad_() for x in inputs]


def differentiated(outputs, inputs, seed=1):
    """Return the outputs, and the gradients of the inputs for random cotangents."""
    rng = np.random.default_rng(seed)
    grads = [mg.tensor(rng.standard_normal(y.shape), dtype=y.dtype, device=y.device) for y in outputs]
    return [*outputs, *mg.grad(outputs, [x for x in inputs if x is not None], grads)]


def agree(ours, composed, tolerance):
    for number, (a, b) in enumerate(zip(map(array, ours), map(array, composed), strict=True)):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(), err_msg=str(number))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("cell", list(cells(6)), ids=name)
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-4)])
@pytest.mark.parametrize("bare", [False, True])
def test_all_steps_are_the_steps(cell, lengths, dtype, tolerance, bare, device):
    inputs = operands(cell, 5, 9, 6, dtype=dtype, affine=not bare, bias=not bare)
    there = on(device, inputs)
    ours = differentiated(
        recurrent(cell, *there, lengths=None if lengths is None else mg.tensor(lengths, device=device)), there
    )
    composed = composition(cell, None if lengths is None else mg.tensor(lengths), *inputs)
    agree(ours, differentiated(composed, inputs), tolerance)


@pytest.mark.parametrize("T, N, H", [(1, 1, 2), (2, 17, 33), (3, 40, 130), (2, 1, 700), (2, 135, 3)])
@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm", "gru"])
def test_sizes(kind, T, N, H, device):
    """Partial blocks of samples and panels of columns; weights larger than a core's cache; several samples per block."""
    norms = {"rnn_tanh": ("sum", (H,)), "lstm": ("state", (4 * H,), True), "gru": ("state", (2 * H, H))}
    cell = Cell(kind, *norms[kind])
    inputs = operands(cell, T, N, H)
    lengths, there = np.random.default_rng(0).integers(0, T + 1, N), on(device, inputs)
    ours = differentiated(recurrent(cell, *there, lengths=mg.tensor(lengths, device=device)), there)
    agree(ours, differentiated(composition(cell, mg.tensor(lengths), *inputs), inputs), 1e-9)


@pytest.mark.parametrize("lengths", [None, [3, 0, 1]], ids=["whole", "lengths"])
@pytest.mark.parametrize("cell", [cell for cell in cells(2) if cell.kind != "rnn_relu"], ids=name)
def test_derivatives_to_order_two(cell, lengths):
    inputs = operands(cell, 3, 3, 2)
    lengths = None if lengths is None else mg.tensor(lengths)
    there = [i for i, x in enumerate(inputs) if x is not None]

    def f(*given):
        filled = [None] * len(inputs)
        for i, x in zip(there, given, strict=True):
            filled[i] = x
        return recurrent(cell, *filled, lengths=lengths)

    assert mg.gradcheck(f, [inputs[i] for i in there], order=2)


def test_outputs_without_gradients_are_the_same(device):
    for cell in cells(5):
        inputs = operands(cell, 4, 11, 5, dtype="float32", device=device)
        recorded = recurrent(cell, *inputs)
        with mg.no_grad():
            for a, b in zip(recorded, recurrent(cell, *inputs), strict=True):
                equals(a, array(b))


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2)])
def test_gradients_of_some_outputs(used, device):
    cell = Cell("lstm", "state", (16,), norm_cell=True)
    inputs = operands(cell, 3, 5, 4)
    there = on(device, inputs)
    ours, composed = recurrent(cell, *there), composition(cell, None, *inputs)
    rng = np.random.default_rng(2)
    grads = [mg.tensor(rng.standard_normal(ours[i].shape)) for i in used]
    found = mg.grad([ours[i] for i in used], there[:4], [g.to(device) for g in grads])
    for a, b in zip(found, mg.grad([composed[i] for i in used], inputs[:4], grads), strict=True):
        near(a, array(b), rtol=1e-9, atol=1e-12)


def everything(cell, inputs, lengths=None):
    return [array(y) for y in differentiated(recurrent(cell, *inputs, lengths=lengths), inputs)]


@pytest.mark.parametrize("cell", [Cell("rnn_tanh", "sum", (40,)), Cell("lstm", "state", (160,), norm_cell=True), Cell("gru")],
                         ids=name)  # fmt: skip
def test_same_bits_for_every_number_of_threads(cell):
    inputs = operands(cell, 7, 37, 40, dtype="float32")
    same_for_all_threads(lambda: everything(cell, inputs))


def test_same_bits_with_large_weights():
    """Blocks of more samples."""
    for cell, batch in ((Cell("lstm"), 50), (Cell("gru", "state", (400, 200)), 130)):
        inputs = operands(cell, 2, batch, 200, dtype="float32")
        same_for_all_threads(lambda inputs=inputs, cell=cell: everything(cell, inputs))


@pytest.mark.parametrize("cell", [Cell("rnn_tanh", "sum", (24,)), Cell("lstm", "state", (96,), norm_cell=True), Cell("gru")],
                         ids=name)  # fmt: skip
@pytest.mark.parametrize("N", [19, 137])
def test_a_sample_does_not_see_its_batch(cell, N, device):
    inputs = operands(cell, 5, N, 24, dtype="float32", device=device)
    with mg.no_grad():
        whole = recurrent(cell, *inputs)
        for n in (0, 7, 8, N - 1):
            alone = [None if x is None else x[:, n : n + 1] if i == 0 else x[n : n + 1] if i in (1, 2) else x
                     for i, x in enumerate(inputs)]  # fmt: skip
            for a, b in zip(whole, recurrent(cell, *alone), strict=True):
                axis = 1 if a.ndim == 3 else 0
                np.testing.assert_array_equal(np.take(array(a), [n], axis), array(b))


@pytest.mark.parametrize("H", [24, 130])
@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_step_is_the_first_of_many(kind, H, dtype, device):
    """Weights used for a single step are multiplied differently, with the same bits, gradients included."""
    cell = Cell(kind)
    for N in (1, 3, 19):
        x, *rest = operands(cell, 2, N, H, dtype=dtype, device=device)
        g = mg.tensor(np.random.default_rng(4).standard_normal((N, H)), dtype=dtype, device=device)
        found = []
        for steps in (1, 2):
            y = recurrent(cell, x[:steps], *rest)[0]
            found.append([y[0], *mg.grad(y[0], [p for p in rest[:2] if p is not None], g)])
        for a, b in zip(*found, strict=True):
            equals(a, array(b))
        assert (array(found[0][1]) != 0).any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_sample(value, device):
    for cell in cells(4):
        inputs = operands(cell, 3, 10, 4, device=device)
        clean = everything(cell, inputs)
        with mg.no_grad():
            inputs[0][1, 6, 0] = value
        found = everything(cell, inputs)
        y, others = found[0], [n for n in range(10) if n != 6]
        np.testing.assert_array_equal(y[:, others], clean[0][:, others])
        np.testing.assert_array_equal(y[0], clean[0][0])
        dx = found[3 if cell.kind == "lstm" else 2]
        np.testing.assert_array_equal(dx[:, others], clean[3 if cell.kind == "lstm" else 2][:, others])
        if np.isnan(value):
            assert np.isnan(y[1, 6]).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_gradients_of_what_is_not_finite_are_those_of_the_composition(value, device):
    for cell in (Cell("rnn_tanh"), Cell("rnn_relu"), Cell("lstm"), Cell("gru")):
        inputs = operands(cell, 3, 5, 4, device=device)
        with mg.no_grad():
            inputs[0][1, 2, 0] = value
        ours, composed = recurrent(cell, *inputs), composition(cell, None, *inputs)
        for a, b in zip(differentiated(ours, inputs), differentiated(composed, inputs), strict=True):
            near(a, array(b), rtol=1e-9, atol=1e-12)


def test_padding_has_no_influence(device):
    lengths = mg.tensor([2, 0, 5, 3, 5, 1, 4, 2, 3, 0], device=device)
    past = np.arange(5)[:, None] >= array(lengths)
    for cell in cells(4):
        inputs = operands(cell, 5, 10, 4, device=device)
        before = everything(cell, inputs, lengths)
        with mg.no_grad():
            noise = np.random.default_rng(9).standard_normal(inputs[0].shape) * 1e6
            inputs[0].copy_(mg.tensor(np.where(past[..., None], noise, array(inputs[0])), device=device))
        after = everything(cell, inputs, lengths)
        for a, b in zip(before, after, strict=True):
            np.testing.assert_array_equal(a, b)
        y, h_n, dx = before[0], before[1], before[3 if cell.kind == "lstm" else 2]
        assert (y[past] == 0).all()
        assert (dx[past] == 0).all()
        for n, length in enumerate(lengths.tolist()):
            start = array(inputs[1])[n]
            np.testing.assert_array_equal(h_n[n], y[length - 1, n] if length else start)


def test_no_steps_at_all_give_finite_gradients(device):
    """Only padding: the last states are the first ones."""
    for cell in cells(3):
        inputs = operands(cell, 2, 4, 3, device=device)
        y, h_n, *grads = everything(cell, inputs, mg.zeros(4, dtype="int64", device=device))
        assert (y == 0).all()
        np.testing.assert_array_equal(h_n, array(inputs[1]))
        assert all(np.isfinite(g).all() for g in grads)


def test_zeros_give_finite_gradients(device):
    """Without input, state and bias every normalized row is constant."""
    for cell in cells(3):
        inputs = [x if x is None or i > 2 else mg.zeros(x.shape, dtype="float64", device=device, requires_grad=True)
                  for i, x in enumerate(operands(cell, 3, 4, 3, bias=False, device=device))]  # fmt: skip
        assert all(np.isfinite(g).all() for g in everything(cell, inputs))


def test_large_means_keep_their_digits(device):
    """Summed inputs of 1e4 with a spread of 1: the shift b moves all units alike, and LN takes it away."""
    cell = Cell("rnn_tanh", "sum", (64,))
    x, _, c, weight, *_ = operands(cell, 1, 6, 64, dtype="float32", affine=False, bias=False, device=device)
    h = mg.zeros((6, 64), device=device)
    with mg.no_grad():
        plain, moved, rounded = (array(recurrent(cell, v, h, c, weight)[0]) for v in (x, x + 1e4, (x + 1e4) - 1e4))
    np.testing.assert_allclose(moved, rounded, atol=2e-6)
    np.testing.assert_allclose(moved, plain, atol=3e-3)  # the precision that float32 leaves for x next to 1e4


def test_writing_into_the_output_is_noticed():
    cell = Cell("gru")
    inputs = operands(cell, 3, 2, 2)
    y, _ = recurrent(cell, *inputs)
    with mg.no_grad():
        y[0] = 1.0
    raises(mg.GradientError, r"\[gru\]", y.sum().backward)


def test_truncated_backpropagation(device):
    """A detached state stops the gradient there, and nothing else changes."""
    cell = Cell("lstm", "state", (8,), norm_cell=True)
    x, h, c, *rest = operands(cell, 6, 3, 2, device=device)
    whole = recurrent(cell, x, h, c, *rest)[0]
    first, h_mid, c_mid = recurrent(cell, x[:4], h, c, *rest)
    second, _, _ = recurrent(cell, x[4:], h_mid.detach(), c_mid.detach(), *rest)
    np.testing.assert_allclose(mg.concat([first, second]).tolist(), whole.tolist(), rtol=1e-12)
    dx = array(mg.grad(second.sum(), [x])[0])
    assert (dx[:4] == 0).all()
    assert (dx[4:] != 0).any()


@pytest.mark.parametrize("change, error, message", [
    ({"x": (3, 2, 5)}, ValueError, r"\[lstm\] expected a projected input \(T, N, 4 H\)"),
    ({"x": (3, 2, 0)}, ValueError, r"\[lstm\] expected a projected input .* got \(3, 2, 0\)"),
    ({"x": (0, 2, 8)}, ValueError, r"\[lstm\] expected a projected input .* got \(0, 2, 8\)"),
    ({"h": (2, 3)}, ValueError, r"\[lstm\] expected h of shape \(2, 2\), got \(2, 3\)"),
    ({"c": (1, 2)}, ValueError, r"\[lstm\] expected c of shape \(2, 2\), got \(1, 2\)"),
    ({"weight": (8, 3)}, ValueError, r"\[lstm\] expected the weight of shape \(8, 2\), got \(8, 3\)"),
    ({"gamma": (4,)}, ValueError, r"\[lstm\] expected gamma of shape \(8,\), got \(4,\)"),
    ({"lengths": [1, 4]}, ValueError, r"\[lstm\] expected lengths from 0 to 3, got 4"),
    ({"lengths": [-1, 3]}, ValueError, r"\[lstm\] expected lengths from 0 to 3, got -1"),
    ({"lengths": [1, 2, 3]}, ValueError, r"\[lstm\] expected 2 lengths, got int64 of shape \(3,\)"),
    ({"lengths": [1.0, 2.0]}, TypeError, r"\[lstm\] expected lengths of int32 or int64, got float32"),
])  # fmt: skip
def test_bad_input(change, error, message):
    given = {"x": (3, 2, 8), "h": (2, 2), "c": (2, 2), "weight": (8, 2)}
    values = {key: mg.zeros(shape) for key, shape in {**given, **change}.items() if key != "lengths"}
    lengths = change.get("lengths")
    with pytest.raises(error, match=message):
        recurrent(Cell("lstm", "state", (8,)), **values, lengths=None if lengths is None else mg.tensor(lengths))


def test_bad_dtypes_and_cells():
    x, h, weight = mg.zeros((3, 2, 4)), mg.zeros((2, 4), dtype="float64"), mg.zeros((4, 4))
    with pytest.raises(TypeError, match=r"\[rnn\] expected one dtype, got an input of float32 and h of float64"):
        recurrent(Cell("rnn_tanh"), x, h, None, weight)
    with pytest.raises(TypeError, match=r"\[rnn\] expected floating-point elements, got int64"):
        recurrent(Cell("rnn_tanh"), x.astype("int64"), h, None, weight)
    for kind, norm in (("gru", "sum"), ("mgu", None), ("lstm", "batch")):
        refuses(ValueError, "recurrent", f"no cell '{kind}'", Cell, kind, norm)
    with pytest.raises(ValueError, match=r"\[lstm\] expected sizes that add up to 8 columns, got \(4,\)"):
        recurrent(
            Cell("lstm", "state", (4,)), mg.zeros((3, 2, 8)), mg.zeros((2, 2)), mg.zeros((2, 2)), mg.zeros((8, 2))
        )
    with pytest.raises(ValueError, match=r"\[lstm\] expected a first cell state c"):
        recurrent(Cell("lstm"), mg.zeros((3, 2, 8)), mg.zeros((2, 2)), None, mg.zeros((8, 2)))


@pytest.mark.parametrize("arguments, options", [
    (("lstm", "state", (1,) * 8), {}), (("lstm", "state", (-4, 12)), {}), (("lstm", "state", ()), {}),
    (("lstm", None, (8,)), {}), (("gru",), {"norm_cell": True}), (("lstm",), {"carry_norm": True}),
    (("lstm",), {"swap": True}), (("lstm",), {"reset_after": False}), (("lstm",), {"eps": -1.0}),
])  # fmt: skip
def test_cells_that_do_not_exist(arguments, options):
    raises(ValueError, r"\[recurrent\] ", Cell, *arguments, **options)


def test_groups_of_a_gru():
    """The gates may be normalized together or apart, the candidate only by itself."""
    for sizes in ((12,), (4, 8), (8, 2, 2), (6, 6)):
        cell = Cell("gru", "state", sizes)
        refuses(ValueError, "gru", "expected the candidate's 4 columns", recurrent, cell, *operands(cell, 2, 3, 4))
    cell = Cell("gru", "state", (4, 4, 4))
    inputs = operands(cell, 3, 5, 4)
    ours, composed = (differentiated(f, inputs) for f in (recurrent(cell, *inputs), composition(cell, None, *inputs)))
    for a, b in zip(ours, composed, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("a", [2.5, -2.5, 0.0])
def test_the_corners_of_the_hard_sigmoid(a, device):
    """Where 0.2 a + 1/2 is exactly 0 or 1, the derivative is 0, with and without create_graph."""
    cell = Cell("lstm", slope=0.2)
    x = mg.tensor([[[a, 0.0, 0.7, 0.3]]], dtype="float64", device=device, requires_grad=True)
    h, c, weight = (mg.zeros((n, 1), dtype="float64", device=device) for n in (1, 1, 4))
    y = recurrent(cell, x, h, c, weight)[0]
    (plain,), (recorded,) = mg.grad(y, [x], retain_graph=True), mg.grad(y, [x], create_graph=True)
    np.testing.assert_allclose(plain.tolist(), recorded.tolist(), rtol=1e-12)
    assert (plain[0, 0, 0].item() == 0) == (a != 0)


def test_padding_of_nan_has_no_influence_on_second_derivatives_either():
    lengths = mg.tensor([2, 3, 1])
    for cell in cells(2):
        found = []
        for value in (0.0, np.nan):
            inputs = operands(cell, 3, 3, 2)
            with mg.no_grad():
                inputs[0][2, 0] = value
                inputs[0][1:, 2] = value
            y = recurrent(cell, *inputs, lengths=lengths)[0]
            (dw,) = mg.grad((y**3).sum(), [inputs[3]], create_graph=True)
            found.append([dw, *mg.grad((dw**2).sum(), [inputs[1], inputs[3]])])
        for a, b in zip(*found, strict=True):
            assert np.isfinite(b.detach().numpy()).all()
            np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_the_caller_may_reuse_the_lengths():
    cell = Cell("gru")
    inputs, numbers = operands(cell, 4, 3, 2), np.array([1, 2, 3])
    y = recurrent(cell, *inputs, lengths=mg.asarray(numbers))[0]
    expected = mg.grad(y.sum(), [inputs[0]], retain_graph=True)[0].numpy()
    numbers[:] = 4
    np.testing.assert_array_equal(mg.grad(y.sum(), [inputs[0]])[0].numpy(), expected)


def test_lengths_that_have_been_checked():
    cell = Cell("gru")
    inputs = operands(cell, 4, 3, 2)
    checked, plain = (everything(cell, inputs, lengths) for lengths in (Lengths([1, 4, 0], 4, 3), mg.tensor([1, 4, 0])))
    for a, b in zip(checked, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    for other in (Lengths([1, 4, 0], 5, 3), Lengths([1, 4], 4, 2)):
        with pytest.raises(ValueError, match=r"\[gru\] expected lengths of 3 samples of 4 steps, got Lengths\("):
            recurrent(cell, *inputs, lengths=other)


def test_an_empty_batch_has_gradients(device):
    for cell, steps in itertools.product(cells(3), (1, 2)):
        inputs = operands(cell, steps, 0, 3, device=device)
        for g in differentiated(recurrent(cell, *inputs), inputs)[-3:]:
            assert (array(g) == 0).all()
