"""Recorded writes to memory that several tensors share: views, their bases, and what backward has saved of them."""

import numpy as np
import pytest
from checks import Same, agree, allocated, array, equals, near, raises, refuses
from peers import torch

import minigrad as mg
from minigrad import nn

# ── random programs ───────────────────────────────────────────────────────────────────────────────


class Memory:
    """A view of memory that each write replaces: what PyTorch's in-place operations mean, without them."""

    def __init__(self, memory, index=None):
        self.memory = [memory.reshape(-1)] if index is None else memory
        self.index = np.arange(memory.numel()).reshape(tuple(memory.shape)) if index is None else np.asarray(index)

    shape = property(lambda self: self.index.shape)
    mT = property(lambda self: Memory(self.memory, self.index.swapaxes(-1, -2)))

    def read(self):
        return self.memory[0][torch.tensor(self.index)]

    def expand(self, *shape):
        return Memory(self.memory, np.broadcast_to(self.index, shape))

    def __getitem__(self, key):
        return Memory(self.memory, self.index[key])

    def __setitem__(self, key, value):
        index = torch.tensor(np.asarray(self.index[key]))
        values = torch.as_tensor(read(value), dtype=torch.float64).expand(index.shape)
        self.memory[0] = self.memory[0].index_put((index,), values)

    def written(self, value):
        self[...] = value
        return self

    def __imul__(self, y):
        return self.written(self.read() * read(y))

    def __iadd__(self, y):
        return self.written(self.read() + read(y))

    def __isub__(self, y):
        return self.written(self.read() - read(y))


def read(x):
    return x.read() if isinstance(x, Memory) else x


KEYS = [..., 0, -1, slice(-2, None), slice(None, None, 2), (..., 0), (..., slice(-2, None))]


def write(x, key, y, way, number, leaf):
    """Write to x or to a part of it in one of seven ways."""
    if way == 0:
        x *= y
    elif way == 1:
        x += y
    elif way == 2:
        x -= 0.3 * (read(x) * read(x)).sin()
    elif way == 3:
        x[key] *= number
    elif way == 4:
        x[key] = read(x[key]).sin()
    elif way == 5:
        x[key] = number
    else:
        x[key] += leaf.sum() * number


def play(seed, leaf, zeros, wrap, steps=14):
    """Take views of tensors, write to them, save them; return a number, and the values of all tensors."""
    rng = np.random.default_rng(seed)
    pool = [(wrap(leaf * 1.5), True), (wrap(leaf.exp() if seed % 2 else zeros), True)]
    terms = []
    for _ in range(steps):
        act, i, j, k, way = (int(n) for n in rng.integers([10, *[len(pool)] * 2, len(KEYS), 7]))
        (x, may_write), y, number = pool[i], pool[j][0], float(rng.standard_normal())
        key = KEYS[k] if len(x.shape) else ...
        if act < 3:
            pool.append((x[key], may_write))
        elif act == 3 and len(x.shape) == 2:
            pool.append((x.mT, may_write))
        elif act == 4 and len(x.shape) < 3:
            pool.append((x.expand(2, *x.shape), False))
        elif act == 5 and number > 0.5:
            terms.append((read(x) * read(x)).sum() * number)
        elif act == 6 and len(pool) > 2:
            pool.pop(i)
        elif may_write:
            write(x, key, y if tuple(y.shape) == tuple(x.shape) else number, way, number, leaf)
    for x, _ in pool:
        terms.append((read(x) * float(rng.standard_normal())).sum() + (read(x) * read(leaf).sum()).sum())
    loss = sum(terms[1:], terms[0])
    return loss, [read(x) for x, _ in pool]


def derivatives(seed, wrap, make, grad):
    """All values of a program, its gradient and the gradient of a product with that; the error if it raises one."""
    rng = np.random.default_rng(seed)
    leaf, c = make(rng.standard_normal((4, 3))), make(rng.standard_normal((4, 3))).detach()
    try:
        loss, values = play(seed, leaf, make(np.zeros((4, 3))).detach(), wrap)
        (g,) = grad(loss, [leaf], create_graph=True)
        (second,) = grad((g * c).sum() + (g * leaf).sum(), [leaf])
    except (mg.GradientError, RuntimeError) as error:
        return str(error)
    return [np.array(x.tolist()) for x in (*values, loss, g, second)]


ERRORS = (
    "written in place afterwards",  # minigrad's
    "modified by an inplace operation",
    # PyTorch 2.13 says this of v[...] += y, where v is a view of zeros that do not require grad
    "a leaf Variable that requires grad is being used in an in-place operation",
)


def test_random_programs(device):
    """As the reference, and only where PyTorch's in-place operations raise an error may minigrad's raise one."""

    def ours(a):
        return mg.tensor(a, device=device, requires_grad=True)

    def theirs(a):
        return torch.tensor(a, requires_grad=True)

    compared = []
    for seed in range(150):
        expected = derivatives(seed, Memory, theirs, torch.autograd.grad)
        found = [derivatives(seed, lambda x: x, make, library.grad)
                 for make, library in ((ours, mg), (theirs, torch.autograd))]  # fmt: skip
        for values in found:
            if isinstance(values, str):
                assert any(error in values for error in ERRORS), (seed, values)
                continue
            for a, b in zip(values, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"program {seed}")
        worked = [isinstance(values, list) for values in found]
        assert worked[0] or not worked[1], (seed, found[0])
        compared.append(worked)
    assert (np.sum(compared, axis=0) > [100, 25]).all()


# ── single programs ───────────────────────────────────────────────────────────────────────────────


def leaf(rng, device, *shape):
    return mg.tensor(rng.standard_normal(shape), device=device, requires_grad=True)


def repeated_products(x, w):
    h = mg.zeros(x.shape, dtype=x.dtype, device=x.device)
    for t in range(1, len(h)):
        h[t] = (h[t - 1] * w + x[t]).tanh()  # PyTorch raises an error in backward: h[t - 1] is saved
    return h


def joined_products(x, w):
    rows = [x[0] * 0]
    for t in range(1, len(x)):
        rows.append((rows[-1] * w + x[t]).tanh())
    return mg.stack(rows)


def written_result(x, w):
    y = x.exp()
    y *= w
    z = y.softmax(-1)
    z[0] *= w
    z[..., 1:] += w[:2]
    return z


def new_result(x, w):
    z = (x.exp() * w).softmax(-1)
    z = mg.concat([(z[0] * w)[None], z[1:]])
    return mg.concat([z[..., :1], z[..., 1:] + w[:2]], axis=-1)


@pytest.mark.parametrize(
    ("write", "plain"), [(repeated_products, joined_products), (written_result, new_result)], ids=["steps", "results"]
)
def test_saved_values_stay_as_they_were(write, plain, device, rng):
    """Views that only the tape holds, and saved results, are not changed by a later write."""
    x, w = leaf(rng, device, 4, 3), leaf(rng, device, 3)
    g = mg.tensor(rng.standard_normal((4, 3)), device=device)
    found = [mg.grad(f(x, w), [x, w], g) for f in (write, plain)]
    agree(*found, rtol=1e-12)
    assert mg.gradcheck(write, (x, w), order=2)


def test_results_of_a_recurrent_layer(device, rng):
    """They are views of the states, which the layer has saved."""
    mg.manual_seed(0)
    gru, x = nn.GRU(3, 4, device=device), mg.tensor(rng.standard_normal((5, 2, 3), dtype=np.float32), device=device)
    y, _ = gru(x)
    y[0] *= 2
    y[1:] += y[:1]
    (y * y).sum().backward()
    found = [array(p.grad) for p in gru.parameters()]
    gru.zero_grad()
    y, _ = gru(x)
    z = mg.concat([2 * y[:1], y[1:] + 2 * y[:1]])
    (z * z).sum().backward()
    for ours, p in zip(found, gru.parameters(), strict=True):
        np.testing.assert_allclose(ours, array(p.grad), rtol=1e-5, atol=1e-6)


def test_saved_value_that_the_user_holds(device):
    """A part that the write has not changed is still what was saved; another one raises an error."""
    w = mg.ones(4, dtype="float64", device=device, requires_grad=True)
    h = w * 3
    first = h[:2]
    y = (first * first).sum()
    h[2:] *= 5
    equals(mg.grad(y, [w], retain_graph=True)[0], [18, 18, 0, 0])
    h[1] *= 5
    equals(first, [3, 15])
    refuses(mg.GradientError, "multiply", "written in place afterwards", y.backward)


def test_parts_of_a_leaf_are_refused(device):
    w = mg.ones(4, device=device, requires_grad=True)
    part = w[1:]
    for write in (lambda: part.__imul__(2), lambda: part.__setitem__(0, 5), lambda: part.fill_(1)):
        raises(mg.GradientError, r"shares memory with a leaf of shape \(4,\).*no_grad", write)
    equals(w, [1, 1, 1, 1])


def test_other_holders_of_the_memory_see_the_values(device):
    """A detached tensor gets no history."""
    w = mg.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    h = w * 2
    detached, exported = h.detach(), mg.from_dlpack(h.detach())
    h[0] *= 5
    h += 1
    for other in (detached, exported):
        equals(other, [11, 5, 7])
        assert not other.requires_grad
    equals(mg.grad(h.sum(), [w])[0], [10, 2, 2])
    h.detach()[1] = 0  # not recorded
    equals(h, [11, 0, 7])


class Hooked(nn.Module):
    def forward(self, x):
        x[0] *= 2
        return x


def test_identities_are_views(device):
    """A Function that returns its argument, and the backward hooks of a module."""
    w, c = mg.tensor([1.0, 2.0], device=device, requires_grad=True), mg.tensor([1.0, 10.0], device=device)
    h = w * 2
    y = Same.apply(h)
    y[1:] *= 5
    equals(h, [2, 20])
    equals(mg.grad((h * c).sum(), [w])[0], [2, 3 * 4 * 5 * 10 * 2])
    h = w * 1
    h += Same.apply(h)
    equals(mg.grad(h.sum(), [w])[0], [4, 7])
    model = Hooked()
    model.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    h = w * 1
    model(h)
    equals(mg.grad((h * c).sum(), [w])[0], [2, 10])


def written_parts(x, w):
    """x and w are vectors of the same length."""
    c = x * w
    c[0] *= 2
    c[1:] += w[:-1].exp()
    q = (c[1:] * c[1:]).sum()
    c[:2] *= w[1:3]
    return q + (c * c).sum()


@pytest.mark.parametrize("how", [mg.recompute, mg.capture])
def test_in_recompute_and_capture(how, device, rng):
    x, w = mg.tensor(rng.standard_normal(4), device=device), leaf(rng, device, 4)

    def step(x):
        w.grad = None
        loss = written_parts(x, w)
        loss.backward()
        return loss

    expected = [array(step(x)), array(w.grad)]
    if how is mg.capture:
        captured = mg.capture(step)
        found = [captured(x) for _ in range(2)][1]
    else:
        w.grad = None
        found = mg.recompute(written_parts)(x, w)
        found.backward()
    equals(found, expected[0])
    near(w.grad, expected[1], rtol=1e-14)
    buffer = mg.zeros(4, dtype="float64", device=device)

    def outside(x):
        buffer[1:3] += (x * w)[1:3]
        return buffer * x

    function = how(outside)
    with pytest.raises((mg.GradientError, mg.CaptureError), match=r"tensors of its own|tensor from outside"):
        [function(x) for _ in range(3)]


def test_a_view_that_is_assigned_to_its_place(device):
    """Python ends ``y[0] *= 2`` with an assignment, which changes nothing; that of a transposed view does."""
    x = mg.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    y = x * 1
    y[0] *= 2
    assert [row["op"] for row in y.tape()] == ["leaf", "multiply", "slice", "multiply", "overlay"]
    y = x * 1
    turned = y.T
    turned *= 2
    y[...] = turned
    equals(y, [[2, 6], [4, 8]])
    equals(mg.grad(y, x, mg.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)), [[2, 6], [4, 8]])


def test_no_leaks(device):
    """Without the garbage collector: no node holds a tensor that depends on it."""
    w = mg.ones(1000, device=device, requires_grad=True)
    before = allocated()
    for _ in range(20):
        h = w * 1
        part = h[3:900]
        y = part.sin() * part
        part *= w[:897]
        h[5:] *= y.sum()
        h[:4] += h[1:5].exp()
        rows = h.reshape(10, 100)
        rows[2] *= rows[3]
        z = h.tanh()
        z[3] *= 2
        z += h + Same.apply(z)
    del h, part, y, rows, z
    assert mg.memory_allocated() == before
