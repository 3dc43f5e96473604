"""Attention: the table, blocks and tiles of every kind, dropout, masks of every layout, and invalid arguments."""

import numpy as np
import pytest
from checks import Suite, array, close, cotangents, litter, near, raises, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table.attention import ATTENTION, attention, compose_attention

import minigrad as mg
from minigrad.nn import functional as F


class TestTable(Suite):
    ops = ATTENTION


def attend(arrays, device, g, **options):
    """Return the result and the gradients of query, key and value."""
    litter(device)
    leaves = [tensor(a, device, True) for a in arrays]
    y = F.scaled_dot_product_attention(*leaves, **options)
    return [array(y), *(array(d) for d in mg.grad(y, leaves, tensor(g, device)))]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch, queries, keys, width, values", [
    ((2, 3), 65, 130, 40, 70), ((1, 1), 300, 300, 16, 33), ((3,), 130, 64, 3, 8), ((1,), 1, 257, 256, 64),
    ((2,), 8, 300, 33, 70),
])  # fmt: skip
def test_blocks(batch, queries, keys, width, values, dtype, device, rng):
    """Lengths and widths of several blocks, with the parts of keys that few heads are cut into."""
    shapes = (*batch, queries, width), (*batch, keys, width), (*batch, keys, values)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    g = rng.standard_normal((*batch, queries, values)).astype(dtype)
    mask = rng.random((queries, keys)) < 0.7
    mask[queries // 2] = False
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        given = {k: tensor(v, device) if k == "attn_mask" else v for k, v in options.items()}
        found = attend(arrays, device, g, **given)
        leaves = [tensor(a.astype("float64"), "cpu", True) for a in arrays]
        composed = compose_attention(*leaves, **{k: tensor(v) if k == "attn_mask" else v for k, v in options.items()})
        exact = [array(composed), *(array(d) for d in mg.grad(composed, leaves, tensor(g.astype("float64"))))]
        for ours, theirs in zip(found, exact, strict=True):
            close(ours, theirs, 200, dtype, str(options.keys()))


@given(st.data())
def test_random_configurations(device, data):
    """Against the definition in NumPy; each sample is computed as if it were alone, to the bit."""
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    n, heads, queries, keys, width, values = draw(1, 3), draw(1, 3), draw(0, 70), draw(0, 140), draw(1, 40), draw(1, 40)
    group, causal, rng = draw(1, 2), data.draw(st.booleans()), np.random.default_rng(draw(0, 1000))
    mask = data.draw(st.sampled_from([None, "bool", "float"]))
    q = rng.standard_normal((n, heads * group, queries, width))
    k, v = (rng.standard_normal((n, heads, keys, size)) for size in (width, values))
    shape = [data.draw(st.sampled_from([1, size])) for size in (n, heads * group, queries, keys)]
    m = None if mask is None else rng.random(shape) < 0.6 if mask == "bool" else rng.standard_normal(shape)
    options = {"is_causal": causal, "enable_gqa": True}

    def run(part):
        of_mask = None if m is None else tensor(m[part] if len(m) > 1 else m, device)
        return array(F.scaled_dot_product_attention(*(tensor(x[part], device) for x in (q, k, v)), of_mask, **options))

    y = run(slice(None))
    close(y, attention(q, k, v, m, **options), 64, "float64")
    for i in range(n):
        np.testing.assert_array_equal(run(slice(i, i + 1))[0], y[i])


@pytest.mark.parametrize("block", range(10))
def test_random_configurations_as_in_pytorch(block, device):
    """300 in all: results, gradients and second derivatives, for masks of every kind that broadcast along any axes."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(block)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    for _ in range(30):
        dtype, lead, grouped = pick("float32", "float64"), pick((), (2,), (2, 3), (1, 2, 2)), pick(1, 2)
        grouped = grouped if len(lead) > 1 else 1
        queries, keys, width, values = pick(1, 2, 7, 20), pick(1, 3, 8, 33), pick(1, 4, 17), pick(1, 5)
        heads = (*lead[:-1], grouped * lead[-1]) if lead else lead
        full = (*heads, queries, keys)
        arrays = [rng.standard_normal(shape).astype(dtype) for shape in (
            (*heads, queries, width), (*lead, keys, width), (*lead, keys, values), (*heads, queries, values))]  # fmt: skip
        weights = [rng.standard_normal(x.shape).astype(dtype) for x in arrays]
        options = {"scale": pick(None, 0.3, -0.7), "enable_gqa": grouped > 1}
        kind, mask = pick("none", "causal", "bool", "float", "infinite"), None
        if kind not in ("none", "causal"):
            shape = [pick(1, n) for n in full][rng.integers(len(full)) :]
            mask = rng.standard_normal(shape).astype(dtype)
            if kind != "float":
                hidden = rng.random(shape) < 0.4
                hidden[..., 0] = False  # PyTorch's result is NaN where a query sees no key
                mask = ~hidden if kind == "bool" else np.where(hidden, -np.inf, mask).astype(dtype)
        options["is_causal"] = kind == "causal" and options["scale"] != -0.7  # for which PyTorch's result is NaN

        def derivatives(attend, grad, make, mask, of=(arrays, weights, options)):
            arrays, weights, options = of
            *leaves, g = [make(a) for a in arrays]
            y = attend(*leaves, mask, **options)
            first = grad(y, leaves, g)
            total = sum((d * make(w)).sum() for d, w in zip(first, weights, strict=False)) + (y**2).sum()
            return [y, *first, *grad(total, leaves, None)]

        ours = derivatives(
            F.scaled_dot_product_attention, lambda y, xs, g: mg.grad(y, xs, g, create_graph=True),
            lambda a: tensor(a, device, True), None if mask is None else tensor(mask, device),
        )  # fmt: skip
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            theirs = derivatives(
                torch.nn.functional.scaled_dot_product_attention,
                lambda y, xs, g: torch.autograd.grad(y, xs, g, create_graph=True),
                lambda a: torch.tensor(a, requires_grad=True), None if mask is None else torch.tensor(mask),
            )  # fmt: skip
        for a, b in zip(ours, theirs, strict=True):
            exact = b.detach().numpy()
            near(a, exact, rtol=0, atol=(1e-12 if dtype == "float64" else 1e-4) * max(1, np.abs(exact).max()))


@pytest.mark.parametrize("queries", [150, 7])
def test_dropout(queries, device, rng):
    """The weights that remain are those of the generator, in every pass, and their mean is one."""
    n, length, width, p = 2, 150, 8, 0.3
    q, k, v = (rng.standard_normal((n, size, width)) for size in (queries, length, length))
    leaves = [tensor(x, device, True) for x in (q, k, v)]
    mg.manual_seed(7)
    y = F.scaled_dot_product_attention(*leaves, dropout_p=p)
    after = mg.random.get_state()
    mg.manual_seed(7)
    ones = mg.ones((n * queries, -(-length // 4) * 4), dtype="float64", device=device)
    factors = F.dropout(ones, p)[:, :length].reshape(n, queries, length)
    assert mg.random.get_state() == after
    assert abs(factors.mean().item() - 1) < 0.05
    composed = mg.matmul(mg.softmax(mg.matmul(leaves[0], leaves[1].mT) / width**0.5) * factors, leaves[2])
    close(array(y), array(composed), 64, "float64")
    (g,) = cotangents([y], rng)
    for create_graph in (False, True):
        found = mg.grad(y, leaves, tensor(g, device), create_graph=create_graph, retain_graph=True)
        for ours, theirs in zip(found, mg.grad(composed, leaves, tensor(g, device), retain_graph=True), strict=True):
            close(array(ours), array(theirs), 200, "float64")
    mg.manual_seed(7)
    assert array(F.scaled_dot_product_attention(*leaves, dropout_p=1.0)).any() == 0


def test_gradient_of_a_mask(device, rng):
    """Additive masks are learned, such as relative positions; a mask of any layout is read, and must not change."""
    q, k, v = (tensor(rng.standard_normal((2, 3, 4, 2)), device, True) for _ in range(3))
    bias = tensor(rng.standard_normal((4, 4, 3)), device, True)
    mask = lambda b: b.T[:, ::-1]  # noqa: E731
    assert mg.gradcheck(lambda *x: F.scaled_dot_product_attention(*x[:3], mask(x[3])), (q, k, v, bias))
    plain = F.scaled_dot_product_attention(q, k, v, mask(bias.detach()))
    close(array(plain), array(F.scaled_dot_product_attention(q, k, v, mask(bias))), 64, "float64")
    held = mg.zeros((4, 4), dtype="float64", device=device)
    y = F.scaled_dot_product_attention(q, k, v, held)
    held += 1
    raises(mg.GradientError, "scaled_dot_product_attention", y.sum().backward)


def test_memory_is_linear(device):
    """No matrix of weights is stored: 8192 by 8192 floats would be 268 MB."""
    if device != "cpu":
        return  # the same holds there, but the emulation takes minutes
    q = mg.ones((8192, 4), requires_grad=True)
    mg.empty_cache()
    before = mg.memory_allocated() + mg.memory_cached()
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert mg.memory_allocated() + mg.memory_cached() - before < 40e6


def test_four_axes_need_no_views(device, rng):
    q, k = (mg.tensor(rng.standard_normal((2, 3, n, 4)), device=device, requires_grad=True) for n in (5, 7))
    assert [row["op"] for row in F.scaled_dot_product_attention(q, k, k).tape()] == [
        "leaf", "leaf", "scaled_dot_product_attention",
    ]  # fmt: skip


# Windows of keys and of values, which have shape (2, 3, 50, 8)
WINDOWS = {
    "first steps": lambda x: x[:, :, :40],
    "last steps": lambda x: x[:, :, 10:],
    "one sample": lambda x: x[1:, :, :40],
    "one head": lambda x: x[:, 1:2, :40],
    "every second head": lambda x: x[:, ::2, :40],
    "one head for all": lambda x: x[:1, :1, :40].broadcast_to((1, 3, 40, 8)),
    "narrower": lambda x: x[:, :, :, :7],
    "steps first": lambda x: x.reshape(2, 50, 3, 8).moveaxis(1, 2),
}


@pytest.mark.parametrize("name, queries, dtype", [
    *((name, 1, "float64") for name in WINDOWS), ("first steps", 35, "float32"), ("one head for all", 9, "float32"),
])  # fmt: skip
def test_windows_of_keys_and_values(name, queries, dtype, device, rng):
    """The results equal those of copies bit for bit, also where the mask hides keys that are NaN."""
    x, hidden = rng.standard_normal((2, 2, 3, 50, 8)), np.zeros((2, 3, 50, 8))
    hidden[:, :, 7:20] = 1
    x[:, hidden == 1] = np.nan
    hidden = WINDOWS[name](tensor(hidden))
    n, heads, _, width = hidden.shape
    q, g = (rng.standard_normal((n, 2 * heads, queries, width)) for _ in range(2))
    mask, results = tensor(np.repeat(array(hidden)[..., 0] == 0, 2, 1)[:, :, None], device), []
    for prepare in (lambda x: x, lambda x: x.copy()):
        leaves = [tensor(a.astype(dtype), device, True) for a in (q, *x)]
        k, v = (prepare(WINDOWS[name](leaf)) for leaf in leaves[1:])
        y = F.scaled_dot_product_attention(leaves[0], k, v, mask, enable_gqa=True)
        results.append([array(y), *(array(d) for d in mg.grad(y, leaves, tensor(g.astype(dtype), device)))])
    for one, other in zip(*results, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


def test_extreme_scores(device):
    """Large scores do not overflow, and NaN stays in the rows it belongs to."""
    q = tensor(np.array([[300.0], [-300.0], [0.0]], np.float32), device)
    k = tensor(np.array([[300.0], [0.0]], np.float32), device)
    v = tensor(np.array([[1.0], [5.0]], np.float32), device)
    assert F.scaled_dot_product_attention(q, k, v).tolist() == [[1.0], [5.0], [3.0]]
    q = tensor(np.array([[np.nan], [0.0]], np.float32), device)
    found = array(F.scaled_dot_product_attention(q, k, v))
    assert np.isnan(found[0]).all()
    assert found[1] == 3


def test_large_masks(device, rng):
    """A query all of whose keys carry -1e9, as where padding meets causality, weighs them evenly, backward too."""
    arrays = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(3)]
    mask = np.zeros((3, 3), np.float32)
    mask[1] = -1e9
    leaves = [tensor(a, device, True) for a in arrays]
    y = F.scaled_dot_product_attention(*leaves, tensor(mask, device))
    near(y[1], arrays[2].mean(0), rtol=1e-5)
    (g,) = cotangents([y], rng)
    plain, composed = (
        mg.grad(y, leaves, tensor(g, device), create_graph=create, retain_graph=True) for create in (False, True)
    )
    for ours, exact in zip(plain, composed, strict=True):
        close(array(ours), array(exact), 16, "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["bool", "float", "both", "dropout"])
def test_what_is_hidden_has_no_influence(kind, dtype, device, rng):
    """NaN and infinity in keys that no query sees, and in queries that see no key: values and both derivatives."""
    queries, keys = 70, 67
    shapes = (1, 2, queries, 5), (1, 1, keys, 5), (1, 1, keys, 6), (1, 2, queries, 6)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    of_gradients = [rng.standard_normal(shape).astype(dtype) for shape in shapes[:3]]
    mask, hidden = rng.random((queries, keys)) < 0.5, {"keys": [1, 5, 66], "queries": [4, 69]}
    mask[:, hidden["keys"]] = mask[hidden["queries"]] = False
    if kind == "float":
        mask = np.where(mask, rng.standard_normal(mask.shape), -np.inf).astype(dtype)
    options = {"attn_mask": mask, "is_causal": kind == "both", "dropout_p": 0.3 * (kind == "dropout")}

    def derivatives(arrays):
        *leaves, g = (tensor(a, device, True) for a in arrays)
        given = options | {"attn_mask": tensor(mask, device), "enable_gqa": True}
        mg.manual_seed(0)
        y = F.scaled_dot_product_attention(*leaves, **given)
        plain = mg.grad(y, leaves, g, retain_graph=True)
        first = mg.grad(y, leaves, g, create_graph=True)
        total = sum((d * tensor(w, device)).sum() for d, w in zip(first, of_gradients, strict=True))
        return [array(a) for a in (y, *plain, *first, *mg.grad(total, [*leaves, g]))]

    clean = derivatives(arrays)
    for a, rows in zip(arrays, ("queries", "keys", "keys", "queries"), strict=True):
        for row, bad in zip(hidden[rows], (np.nan, np.inf, -np.inf), strict=False):
            a[:, :, row, -1 if row == 5 else slice(None)] = bad
    for ours, exact in zip(derivatives(arrays), clean, strict=True):
        close(ours, exact, 200, dtype, kind)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_hidden_by_causality_has_no_influence(dtype, device, rng):
    """Later keys and values, on earlier results; earlier queries and cotangents, on the gradients of later keys."""
    arrays = [rng.standard_normal((1, 90, 5)).astype(dtype) for _ in range(4)]
    clean = attend(arrays[:3], device, arrays[3], is_causal=True)
    later, earlier = ([a.copy() for a in arrays] for _ in range(2))
    later[1][:, 70:], later[2][:, 71:, 2] = np.nan, np.inf
    earlier[0][:, :20], earlier[3][:, 15:20] = np.inf, np.nan
    for bad, part, of in ((later, slice(0, 70), (0, 1)), (earlier, slice(20, 90), (2, 3))):
        found = attend(bad[:3], device, bad[3], is_causal=True)
        for i in of:
            close(found[i][:, part], clean[i][:, part], 200, dtype)
            others = np.delete(found[i], np.r_[part], axis=1)
            assert np.isnan(others).any(axis=(0, 2)).all() or i == 0


def test_refusals(device):
    op = "scaled_dot_product_attention"
    call = F.scaled_dot_product_attention
    x = mg.ones((2, 3, 4), device=device)
    refuses(ValueError, op, ["(4,)", "length"], call, x[0, 0], x, x)
    refuses(ValueError, op, ["(2, 3, 4)", "(2, 3, 3)"], call, x, x[..., :3], x)
    refuses(ValueError, op, ["(2, 2, 4)", "(2, 3, 4)"], call, x, x[:, :2], x)
    refuses(ValueError, op, ["enable_gqa"], call, mg.ones((4, 3, 4), device=device), x, x)
    refuses(
        ValueError, op, ["multiple", "3", "2"], lambda q, k: call(q, k, k, enable_gqa=True),
        mg.ones((3, 3, 4), device=device), x,
    )  # fmt: skip
    refuses(ValueError, op, ["heads"], lambda q: call(q, q, q, enable_gqa=True), x[0])
    refuses(TypeError, op, ["float32", "float64"], call, x, x.astype("float64"), x)
    refuses(TypeError, op, "int64", call, x.astype("int64"), x, x)
    refuses(TypeError, op, ["attn_mask", "int64"], call, x, x, x, mg.ones((3, 3), dtype="int64", device=device))
    refuses(ValueError, op, ["attn_mask", "(2, 3, 3)", "(5, 3)"], call, x, x, x, mg.ones((5, 3), device=device))
    refuses(ValueError, op, ["dropout_p", "1.5"], lambda x: call(x, x, x, dropout_p=1.5), x)
    refuses(TypeError, op, "scale", lambda x: call(x, x, x, scale="a"), x)
