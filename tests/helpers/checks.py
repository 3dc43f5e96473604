"""The tests that every operation of the table passes, and the tools for them."""

import copy
import gc
import re
from functools import reduce

import numpy as np
import pytest

import minigrad as mg

KINDS = {"f": ("float64", "float32"), "i": ("int64", "int32"), "b": ("bool",)}


# ── small tools ───────────────────────────────────────────────────────────────────────────────────


def leaf(*values, dtype="float64"):
    """A vector that requires grad."""
    return mg.tensor(list(values), dtype=dtype, requires_grad=True)


def allocated():
    """Return the bytes of live tensors, after collecting garbage."""
    gc.collect()
    return mg.memory_allocated()


def equals(x, expected):
    """x has these values, bit for bit."""
    np.testing.assert_array_equal(array(x), expected)


def near(x, expected, **tolerance):
    """x has these values within `rtol` or `atol`."""
    np.testing.assert_allclose(array(x), expected, **tolerance)


def agree(found, expected, **tolerance):
    """Compare tensors of any library or arrays in pairs; without `rtol` or `atol`, bit for bit."""
    compare = np.testing.assert_allclose if tolerance else np.testing.assert_array_equal
    for pair in zip(found, expected, strict=True):
        ours, theirs = (
            array(x) if isinstance(x, mg.Tensor) else x.detach() if hasattr(x, "detach") else x for x in pair
        )
        compare(ours, theirs, **tolerance)


class Exp(mg.Function):
    """A user's Function, which saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Cube(mg.Function):
    """A user's Function, y = x³ with dx = 3 g x²."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x * x


class Same(mg.Function):
    """y = x; dx = 3g x."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


def doubling(name, backward=lambda ctx, g: g * 2, forward=lambda ctx, x: x * 2):
    """A user's Function that doubles, called in any form, or has another backward or forward."""
    return type(name, (mg.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def named(p, phase):
    """Return (operation, kernel) of every event of a phase in a profile, in order."""
    return [(event.op, event.kernel) for event in p.events if event.phase == phase]


class Exporter:
    """A tensor of another library, which only supports DLPack and records the stream that will use its memory."""

    def __init__(self, x):
        self.x, self.stream = x, None

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        self.stream = stream
        return self.x.__dlpack__(stream=stream)


def waited(function):
    """Wrap `function` so that it waits for the GPU, which reports wrong indices by then."""

    def call(*arguments, **options):
        result = function(*arguments, **options)
        for device in {int(x.device[5:]) for x in arguments if isinstance(x, mg.Tensor) and x.device != "cpu"}:
            mg.cuda.synchronize(device)
        return result

    return call


# ── tensors of every layout ───────────────────────────────────────────────────────────────────────


def everywhere(part):
    """x[part] along every axis."""
    return lambda x, shape: x[(part,) * len(shape)]


# name: (shape of the memory for a view of a shape, the view); the same expression for arrays and tensors
LAYOUTS = {
    "contiguous": (lambda shape: shape, lambda x, shape: x),
    "transposed": (lambda shape: shape[::-1], lambda x, shape: x.T),
    "strided": (lambda shape: tuple(2 * n for n in shape), everywhere(slice(1, None, 2))),
    "reversed": (lambda shape: shape, everywhere(slice(None, None, -1))),
    "broadcast": (
        lambda shape: (1,) * min(len(shape), 1) + shape[1:],
        lambda x, shape: (np if isinstance(x, np.ndarray) else mg).broadcast_to(x, shape),
    ),
}  # fmt: skip


def sample(rng, shape, dtype, interval=(-2, 2)):
    """Return random values of a dtype, the same for float32 and float64."""
    low, high = interval
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.startswith("int"):
        values = rng.integers(round(low), round(high) + 1, shape)
        return np.where(values == 0, 1, values).astype(dtype) if low > 0 else np.asarray(values, dtype)
    return np.asarray(rng.uniform(low, high, shape), np.float32).astype(dtype)


def tensor(array, device="cpu", requires_grad=False):
    return mg.tensor(array, device=device, requires_grad=requires_grad)


def litter(device="cpu"):
    """Leave NaN in memory that the pool will reuse next, to expose an operation that does not write its result."""
    rubbish = [mg.full(2**k, np.nan, dtype="float64", device=device) for k in range(12) for _ in range(3)]
    del rubbish


def array(x):
    """Return a tensor's values in NumPy, from any device."""
    return x.detach().to("cpu").numpy()


def as_list(ys):
    return list(ys) if isinstance(ys, (list, tuple)) else [ys]


class Inputs:
    """Make the operands of one case: the memory of each, and the view of it that the operation gets.

    The first operand has the layout of that name, later ones the next layouts of LAYOUTS; None makes all contiguous.
    """

    def __init__(self, op, case, dtype, layout, rng, device):
        litter(device)
        names = list(LAYOUTS)
        self.op, self.case, self.dtype, self.device = op, case, dtype, device
        self.bases, self.views = [], []
        for k, shape in enumerate(case.shapes):
            memory, view = LAYOUTS[names[(names.index(layout) + k) % len(names) if layout else 0]]
            self.bases.append(sample(rng, memory(shape), dtype, op.interval(k)))
            self.views.append(lambda x, view=view, shape=shape: view(x, shape))

    def on(self, device):
        """Return the same operands on another device."""
        other = copy.copy(self)
        other.device = device
        return other

    def options(self, make):
        """Return the other arguments, with arrays converted to tensors; floats get the dtype of the operands."""

        def convert(v):
            if not isinstance(v, np.ndarray):
                return v
            return make(v.astype(self.dtype) if v.dtype.kind == "f" else v)

        return {k: convert(v) for k, v in self.case.options.items()}

    def arrays(self, dtype=None):
        return [view(base.astype(dtype or self.dtype)) for view, base in zip(self.views, self.bases, strict=True)]

    def tensors(self, wanted=None):
        """Leaves; those wanted (default: all floats) require grad."""
        return [
            tensor(base, self.device, base.dtype.kind == "f" and (wanted is None or k in wanted))
            for k, base in enumerate(self.bases)
        ]

    def function(self, function):
        """Return `function` of the case as a function of the leaves."""
        options = self.options(lambda v: tensor(v, self.device))
        return lambda *leaves: as_list(
            function(*(view(x) for view, x in zip(self.views, leaves, strict=True)), **options)
        )

    def run(self, *leaves):
        return self.function(self.op)(*leaves)

    def reference(self):
        """Return NumPy's result, computed in float64 for floats."""
        dtype = "float64" if self.dtype.startswith("float") else self.dtype
        options = {
            k: v.astype(dtype) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v
            for k, v in self.case.options.items()
        }
        with np.errstate(all="ignore"):
            return [np.asarray(y) for y in as_list(self.op.numpy(*self.arrays(dtype), **options))]


def cotangents(ys, rng):
    """Return random gradients for results; never ones, whose gradient through a normalization is zero."""
    return [np.asarray(rng.standard_normal(y.shape), np.float32).astype(str(y.dtype)) for y in ys]


def gradients(function, leaves, grads, create_graph=False):
    """Return the gradients of the leaves that require grad."""
    wanted = [x for x in leaves if x.requires_grad]
    ys = function(*leaves)
    assert all(y.requires_grad for y in ys)
    grads = [tensor(g, y.device) for g, y in zip(grads, ys, strict=True)]
    return [array(g) for g in mg.grad(ys, wanted, grads, create_graph=create_graph)]


def second_order(inputs, seed):
    """Return the gradients of a random sum of the results, and those of a random sum of these gradients, by the leaves
    and by the first sum's numbers."""
    rng, leaves = np.random.default_rng(seed), inputs.tensors()
    wanted = [x for x in leaves if x.requires_grad]
    ys = inputs.run(*leaves)
    assert all(y.requires_grad for y in ys)
    grads = [tensor(g, inputs.device, True) for g in cotangents(ys, rng)]
    first = mg.grad(ys, wanted, grads, create_graph=True)
    pairs = [(dx, tensor(v, inputs.device)) for dx, v in zip(first, cotangents(first, rng), strict=True)]
    reached, given = zip(*[(dx, v) for dx, v in pairs if dx.requires_grad], strict=True)
    points = [*wanted, *grads]
    second = mg.grad(reached, points, given, allow_unused=True)  # the gradient of a linear function has no x in it
    return [array(g) for g in first], [
        np.zeros(x.shape, x.dtype) if g is None else array(g) for x, g in zip(points, second, strict=True)
    ]


def close(ours, expected, ulps, dtype, what=""):
    """Compare within `ulps` units in the last place of the largest expected number."""
    assert ours.shape == expected.shape, (what, ours.shape, expected.shape)
    if ulps == 0:
        np.testing.assert_array_equal(ours, expected, err_msg=what)
    else:
        eps = np.finfo(dtype).eps
        finite = np.abs(expected[np.isfinite(expected)])
        scale = max(1.0, finite.max()) if finite.size else 1.0
        np.testing.assert_allclose(ours, expected, rtol=ulps * eps, atol=ulps * eps * scale, err_msg=what)


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings(
    "ignore:Mean of empty slice", "ignore:Degrees of freedom", "ignore:var... degrees of freedom"
)
class Suite:
    """Tests that run for each case of the operations in `ops`, which a subclass in a test module sets."""

    ops = ()

    def __init_subclass__(cls):
        for name in [name for name in vars(Suite) if name.startswith("test_")]:
            if not any(op.takes_part(name) for op in cls.ops):
                setattr(cls, name, None)

    def test_forward(self, op, case, device, rng):
        """The result and dtype are NumPy's, for every dtype and layout, and inputs do not change."""
        for layout in LAYOUTS:
            for dtype in [d for kind in op.dtypes for d in KINDS[kind]]:
                inputs = Inputs(op, case, dtype, layout, rng, device)
                leaves = inputs.tensors(())
                ys, expected = inputs.run(*leaves), inputs.reference()
                assert len(ys) == len(expected)
                for y, e in zip(ys, expected, strict=True):
                    floats = case.options.get("dtype", dtype if dtype.startswith("float") else "float32")
                    assert y.dtype == (floats if e.dtype.kind == "f" else str(e.dtype)), (layout, dtype)
                    assert y.device == device
                    close(array(y), e, op.ulps if e.dtype.kind == "f" else 0, str(y.dtype), f"{layout} {dtype}")
                for x, base in zip(leaves, inputs.bases, strict=True):
                    np.testing.assert_array_equal(array(x), base)

    def test_gradients(self, op, case, device, rng):
        """Derivatives to second order, through views as inputs: central differences on the CPU, elsewhere the CPU's."""
        for layout in LAYOUTS:
            inputs = Inputs(op, case, "float64", layout, rng, device)
            seed = int(rng.integers(1 << 30))
            if device == "cpu":
                assert mg.gradcheck(inputs.run, inputs.tensors(), rtol=1e-6, atol=1e-7, seed=seed)
                continue
            there, here = second_order(inputs, seed), second_order(inputs.on("cpu"), seed)
            for order, pairs in enumerate(zip(there, here, strict=True), 1):
                for ours, exact in zip(*pairs, strict=True):
                    close(ours, exact, 4 * max(op.ulps, 16), "float64", f"{layout} order {order}")

    def test_float32_gradients(self, op, case, device, rng):
        """float32 has kernels that `gradcheck` does not test: they agree with float64's within rounding."""
        for layout in LAYOUTS:
            inputs = Inputs(op, case, "float32", layout, rng, device)
            found = []
            for dtype in ("float32", "float64"):
                inputs.bases = [base.astype(dtype) for base in inputs.bases]
                inputs.dtype = dtype
                leaves = inputs.tensors()
                with mg.no_grad():
                    shapes = inputs.run(*leaves)
                if dtype == "float32":
                    grads = cotangents(shapes, rng)
                found.append(gradients(inputs.run, leaves, [g.astype(dtype) for g in grads]))
            for ours, exact in zip(*found, strict=True):
                assert ours.dtype == np.float32
                close(ours, exact, 4 * max(op.ulps, 16), "float32", layout)

    def test_recorded_gradients(self, op, case, device, rng):
        """With create_graph the gradient is computed by recorded operations, and is the same."""
        for dtype in KINDS["f"]:
            inputs = Inputs(op, case, dtype, None, rng, device)
            leaves = inputs.tensors()
            grads = cotangents(inputs.run(*leaves), rng)
            plain, recorded = (gradients(inputs.run, leaves, grads, create_graph) for create_graph in (False, True))
            for ours, other in zip(plain, recorded, strict=True):
                close(ours, other, 4 * max(op.ulps, 16), dtype)

    def test_chosen_gradients(self, op, case, device, rng):
        """Each operand alone gets the same gradient as together with the others."""
        if len(case.shapes) == 1:
            return
        inputs = Inputs(op, case, "float64", None, rng, device)
        leaves = inputs.tensors()
        grads = cotangents(inputs.run(*leaves), rng)
        together = gradients(inputs.run, leaves, grads)
        for k, expected in enumerate(together):
            function = inputs.run
            if len(as_list(inputs.run(*leaves))) > 1:  # some results may not depend on operand k
                function = lambda *xs, k=k: [y + xs[k].sum() * 0 for y in inputs.run(*xs)]  # noqa: E731
            (alone,) = gradients(function, inputs.tensors({k}), grads)
            np.testing.assert_array_equal(alone, expected)

    def test_torch(self, op, case, device, rng):
        """PyTorch's result and gradients."""
        torch = pytest.importorskip("torch")
        inputs = Inputs(op, case, "float64", None, rng, device)
        theirs = reduce(getattr, (op.torch or op.name).split("."), torch) if isinstance(op.torch, str) else None
        renamed = {"axis": "dim", "keepdims": "keepdim"}
        options = {renamed.get(k, k) if theirs else k: v for k, v in inputs.options(torch.from_numpy).items()}
        if "target" in options:
            options["target"] = options["target"].long()
        points = [torch.from_numpy(a.copy()).requires_grad_() for a in inputs.bases]
        expected = as_list(theirs(*points, **options) if theirs else op.torch(torch, *points, **options))
        leaves = inputs.tensors()
        ys = inputs.run(*leaves)
        grads = cotangents(ys, rng)
        for y, e in zip(ys, expected, strict=True):
            close(array(y), e.detach().numpy(), max(op.ulps, 16), "float64")
        found = torch.autograd.grad(expected, points, [torch.from_numpy(g) for g in grads], materialize_grads=True)
        for ours, theirs in zip(gradients(inputs.run, leaves, grads), found, strict=True):
            close(ours, theirs.numpy(), 4 * max(op.ulps, 16), "float64")

    def test_composition(self, op, case, device, rng):
        """A fused operation and its composition of primitive ones have the same results and gradients."""
        for dtype in KINDS["f"]:
            inputs = Inputs(op, case, dtype, None, rng, device)
            leaves = inputs.tensors()
            composed = inputs.function(op.composition)
            ys = inputs.run(*leaves)
            for y, e in zip(ys, composed(*leaves), strict=True):
                close(array(y), array(e), 2 * op.ulps, dtype)
            grads = cotangents(ys, rng)
            for ours, e in zip(gradients(inputs.run, leaves, grads), gradients(composed, leaves, grads), strict=True):
                close(ours, e, 8 * max(op.ulps, 16), dtype)

    def test_captured(self, op, case, device, rng):
        """A recorded run, with other operands than the recorded ones, has the same bits, and so have its gradients."""
        # Launches are recorded on a GPU, whatever the kernel, and emulated kernels take long.
        dtypes = [d for kind in op.dtypes for d in KINDS[kind]]
        for layout in LAYOUTS if device == "cpu" else [*LAYOUTS][:1]:
            for dtype in dtypes if device == "cpu" else dtypes[:1]:
                recorded, given = (Inputs(op, case, dtype, layout, rng, device) for _ in range(2))
                wanted = [base.dtype.kind == "f" for base in given.bases]
                grads = [tensor(g, device) for g in cotangents(given.run(*given.tensors(())), rng)]

                run = recorded.function(op)

                def step(leaves, grads, run=run, wanted=wanted):
                    leaves = [x.detach().requires_grad_(w) for x, w in zip(leaves, wanted, strict=True)]
                    ys = run(*leaves)
                    pairs = [(y, g) for y, g in zip(ys, grads, strict=True) if y.requires_grad]
                    if not pairs:
                        return ys, []
                    xs = [x for x in leaves if x.requires_grad]
                    return ys, mg.grad([y for y, _ in pairs], xs, [g for _, g in pairs], allow_unused=True)

                captured = mg.capture(step, warmup=0)
                if op.shaped_by_values(case):
                    with pytest.raises(mg.CaptureError, match="whose result has a shape that depends on values"):
                        captured(recorded.tensors(()), grads)
                    continue
                captured(recorded.tensors(()), grads)
                pairs = zip(captured(given.tensors(()), grads), step(given.tensors(()), grads), strict=True)
                for found, expected in pairs:
                    for x, e in zip(found, expected, strict=True):
                        np.testing.assert_array_equal(array(x), array(e), err_msg=f"{layout} {dtype}")
                assert captured.recordings == 1

    def test_method(self, op, case, device, rng):
        """The tensor method of the same name is the operation."""
        if (
            op.name not in dir(mg.zeros(1))
            or op.ours is not None
            or op.name in ("reshape", "permute_dims", "transpose")
        ):
            return  # these also take their numbers one by one: see test_layout.py
        inputs = Inputs(op, case, "float32" if "f" in op.dtypes else "int64", None, rng, device)
        leaves = inputs.tensors(())
        options = inputs.options(lambda v: tensor(v, device))
        for y, e in zip(as_list(getattr(leaves[0], op.name)(*leaves[1:], **options)), inputs.run(*leaves), strict=True):
            assert y.dtype == e.dtype
            np.testing.assert_array_equal(array(y), array(e))


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def raises(exception, pattern, call, *arguments, **options):
    """`call(*arguments)` raises, and the pattern is found in the message."""
    with pytest.raises(exception, match=pattern):
        call(*arguments, **options)


def refuses(exception, op, numbers, call, *arguments, **options):
    """`call(*arguments)` raises, the message beginning with [op] and holding `numbers`, and changes nothing."""
    tensors = [x for x in (*arguments, *options.values()) if isinstance(x, mg.Tensor)]
    before = [(array(x).copy(), x.version, x.shape, x.dtype, x.requires_grad, x.is_leaf) for x in tensors]
    state = mg.random.get_state()
    with pytest.raises(exception) as caught:
        call(*arguments, **options)
    assert type(caught.value) is exception, f"{type(caught.value).__name__}: {caught.value}"
    assert re.match(re.escape(f"[{op}] "), str(caught.value)), str(caught.value)
    for number in [numbers] if isinstance(numbers, str) else numbers:
        assert number in str(caught.value), str(caught.value)
    assert mg.random.get_state() == state
    for x, (values, *rest) in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(array(x), values)
        assert [x.version, x.shape, x.dtype, x.requires_grad, x.is_leaf] == rest
