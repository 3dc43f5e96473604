"""In-place writes: which the tape records, and which it rejects."""

import functools
import time
import weakref

import numpy as np
import pytest
from checks import agree, allocated, array, equals, near, raises, refuses
from points import point

import minigrad as mg

IN_PLACE = {
    "+=": (lambda h, c: h.__iadd__(c), lambda h, c: h + c),
    "-=": (lambda h, c: h.__isub__(c), lambda h, c: h - c),
    "*=": (lambda h, c: h.__imul__(c), lambda h, c: h * c),
    "/=": (lambda h, c: h.__itruediv__(c), lambda h, c: h / c),
    "**=": (lambda h, c: h.__ipow__(c), lambda h, c: h**c),
    "%=": (lambda h, c: h.__imod__(c), lambda h, c: h % c),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("operand", ["tensor", "number", "broadcast"])
def test_recorded_writes_have_the_gradient_of_the_operation(name, operand, device):
    write, plain = IN_PLACE[name]
    found = []
    for operation in (write, plain):
        x, c = point(device, 0.5, 2, 3), point(device, 1.5, 0.5, 2)
        other = {"tensor": c, "number": 2.0, "broadcast": c.sum()}[operand]
        y = operation(x * 1.0, other)
        (y * y).sum().backward()
        found.append((array(y), array(x.grad), None if c.grad is None else array(c.grad)))
    agree(*found)


def test_the_written_tensor_stays_the_same_object(device):
    x = point(device, 2)
    h = k = x * 3
    h *= h
    assert h is k
    h.backward()
    equals(x.grad, [36])


BY_ITSELF = {
    "+=": (lambda h, y: h.__iadd__(h * h), lambda h: h + h * h),
    "*=": (lambda h, y: h.__imul__(h), lambda h: h * h),
    "-= cos": (lambda h, y: h.__isub__(h.cos()), lambda h: h - h.cos()),
    "%= cos": (lambda h, y: h.__imod__(h.cos()), lambda h: h % h.cos()),
    "setitem": (lambda h, y: h.__setitem__(slice(1), (h * h)[1:2]), lambda h: mg.concat([(h * h)[1:2], h[1:]])),
    "an earlier product": (lambda h, y: h.__iadd__(1).__iadd__(y), lambda h: h + 1 + h * h),
    "twice": (lambda h, y: h.__iadd__(h * h).__imul__(h), lambda h: (h + h * h) * (h + h * h)),
}


@pytest.mark.parametrize("name", BY_ITSELF)
def test_writes_of_what_was_computed_from_the_tensor(name, device):
    """The operations that saved the tensor keep what it was: the gradient is right, and no cycle keeps memory."""
    write, plain = BY_ITSELF[name]

    def function(x):
        h = x * 1.0
        alive.append(weakref.ref(h))
        y = h * h if name == "an earlier product" else None
        write(h, y)
        return h

    x, alive = point(device, 0.5, 2, 3), []
    if name == "an earlier product":  # The write was not recorded: the values are lost.
        raises(mg.GradientError, "written in place afterwards", function(x).sum().backward)
    else:
        c = mg.tensor([0.3, -1.2, 0.7], dtype="float64", device=device)
        (ours,), (expected,) = mg.grad(function(x), [x], c), mg.grad(plain(x), [x], c)
        near(ours, array(expected), rtol=1e-14)
        assert mg.gradcheck(function, (x,), order=2)
    assert all(ref() is None for ref in alive)


def test_a_loop_of_writes_takes_linear_time():
    """Each write finds the operations that saved the tensor without traversing the whole history again."""

    def seconds(keep):
        h, kept = mg.ones(4, requires_grad=True) * 1.0, []
        start = time.perf_counter()
        for _ in range(8000):
            kept.append(h.sin())
            if not keep:
                kept.clear()
            h += 0.1
        return time.perf_counter() - start

    assert seconds(keep=True) < 10 * seconds(keep=False)


@pytest.mark.parametrize("write", [
    lambda h: h.fill_(3), lambda h: h.zero_(), lambda h: h.copy_(mg.ones(2, dtype="float64", device=h.device)),
])  # fmt: skip
def test_filled_tensors_forget_where_they_came_from(write, device):
    x = point(device, 1, 2)
    h = x * 2
    write(h)
    (h * h + x).sum().backward()
    equals(x.grad, [1, 1])


def test_written_parts(device):
    x, v = point(device, 1, 2, 3), point(device, 10, 20)
    h = x * x
    h[:2] = v
    (h * h).sum().backward()
    equals(x.grad, [0, 0, 4 * 27])
    equals(v.grad, [20, 40])


def test_copy_from_another_device(device):
    x, w = mg.zeros(2, device=device), mg.ones(2, requires_grad=True)
    x.copy_(w * 3)
    assert x.tolist() == mg.zeros(2).copy_(x.detach()).tolist() == [3.0, 3.0]
    x.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]


def test_copy_from_a_recorded_tensor(device):
    x = point(device, 1, 2)
    y = mg.zeros((3, 2), dtype="float64", device=device)
    y.copy_(x * x)
    y.sum().backward()
    equals(x.grad, [6, 12])


def test_leaf_refuses_recorded_writes_and_accepts_others(device):
    x = point(device, 1, 2)
    for write in (
        lambda: x.fill_(0), lambda: x.zero_(), lambda: x.copy_(1), lambda: x.__setitem__(0, 1), lambda: x.__iadd__(1),
    ):  # fmt: skip
        raises(mg.GradientError, r"leaf.*no_grad", write)
    equals(x, [1, 2])
    version = x.version
    with mg.no_grad():
        x += 1
        x[0] = 7
        x.fill_(4)
    equals(x, [4, 4])
    assert x.version == version + 3
    assert x.requires_grad
    assert x.is_leaf


@pytest.mark.parametrize("size", [2, 100])
def test_saved_value_written_since(size, device):
    x = mg.ones(size, device=device, requires_grad=True)
    w = mg.ones(size, device=device)
    for write in (
        lambda: w.__iadd__(1), lambda: w.fill_(3), lambda: w.set_(mg.ones(size, device=device) * 5),
        lambda: w.__setitem__(0, 2.0), lambda: w[:1].fill_(9), lambda: w.detach().fill_(3),
    ):  # fmt: skip
        y = (x * w).sum()
        write()
        raises(mg.GradientError, r"^\[multiply\].*written in place.*saved shapes \(" + str(size), y.backward)
    assert x.grad is None


WRITES = {
    "part": lambda x, view: x.__setitem__(slice(1, None), view(x)[:-1]),
    "backwards": lambda x, view: x.__setitem__(..., view(x)[::-1]),
    "copy_": lambda x, view: getattr(x, "copy_", functools.partial(np.copyto, x))(view(x)[::-1]),
    "+=": lambda x, view: x.__iadd__(view(x)[::-1]),
    "part +=": lambda x, view: x[1:].__iadd__(view(x)[:-1]),
    "indices": lambda x, view: x.__setitem__(np.arange(x.shape[0])[::-1], view(x)),
    "apart": lambda x, view: x.__setitem__(slice(0, 4), view(x)[4:8]),
    "itself": lambda x, view: x.__imul__(view(x)),
    "in turn": lambda x, view: x.__setitem__(slice(0, None, 2), view(x)[1::2]),
}


@pytest.mark.parametrize("through", ["tensor", "numpy", "adopted"])
@pytest.mark.parametrize("name", WRITES)
def test_operands_that_share_the_memory_written(name, through, device, rng):
    """The previous values are read, through whichever object the memory is accessed."""
    if device != "cpu" and through != "tensor":
        through = "dlpack"
    for shape in ((64,), (12, 5)):
        a = rng.standard_normal(shape)
        x = mg.asarray(a.copy()) if through == "adopted" else mg.tensor(a, device=device)
        expected = a.copy()
        WRITES[name](expected, np.copy)
        see = {"tensor": lambda x: x, "numpy": lambda x: x.numpy(), "dlpack": mg.from_dlpack,
               "adopted": lambda x: mg.asarray(x.numpy())}[through]  # fmt: skip
        with mg.no_grad():
            WRITES[name](x, see)
        equals(x, expected)


def test_a_leaf_that_was_frozen_and_written_by_a_recorded_operation(device):
    """It is another tensor then, with a history: passes over earlier operations only reach the others."""
    x, w = point(device, 1, 2), point(device, 3, 4)
    y = (x + w).sum()
    x.requires_grad = False
    x += w
    assert not x.is_leaf
    y.backward()
    equals(w.grad, [1, 1])
    x.sum().backward()
    equals(w.grad, [2, 2])
    assert x.grad is None


def test_an_array_that_its_owner_writes_later():
    """The version of a tensor over shared memory does not count writes by other libraries."""
    for product in (mg.multiply, mg.vecdot, mg.kron, mg.einsum):
        x, mask = point("cpu", 1, 2), np.array([1.0, 1.0])
        y = product(*(["i,i->i"] if product is mg.einsum else []), x, mask).sum()
        mask[...] = 7
        y.backward()
        equals(x.grad, [2, 2] if product is mg.kron else [1, 1])


def test_a_leaf_that_became_another_tensor(device):
    x, w = point(device, 1, 2), point(device, 3, 4)
    y = (x + w).sum()  # saves nothing
    x.set_(mg.ones(3, device=device))
    refuses(mg.GradientError, "backward", "a leaf of shape (2,) became another tensor", y.backward)
    assert (x.grad, w.grad) == (None, None)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_saved_value_not_needed_may_be_written(device):
    x, w = point(device, 1, 2), mg.ones(2, dtype="float64", device=device)
    y = (x + w).sum()
    w += 1
    y.backward()
    equals(x.grad, [1, 1])


def test_saved_result_written_since(device):
    x = point(device, 1, 2)
    y = x.exp()
    with mg.no_grad():
        y *= 2
    refuses(mg.GradientError, "exp", "written in place", y.sum().backward)


def test_views_share_memory_where_nothing_is_recorded(device):
    b = mg.zeros((2, 3), device=device)
    b[1].fill_(2)
    b.T[0] += 5
    b.reshape(-1)[2] = 9
    equals(b, [[5, 0, 9], [7, 2, 2]])


def test_broadcast_tensor_refuses_writes(device):
    t = mg.zeros(1, device=device)
    z = mg.broadcast_to(t, (3,))
    for write in (lambda: z.__iadd__(1), lambda: z.fill_(1), lambda: z.__setitem__(0, 1), lambda: z.copy_(1)):
        raises(ValueError, r"broadcast.*\(3,\)", write)
    equals(t, [0])


def test_recorded_writes_do_not_leak():
    w = mg.ones(1000, requires_grad=True)
    before = allocated()
    for _ in range(100):
        h = w * 1
        h *= w
        h **= 2
        h += h
    del h
    assert mg.memory_allocated() == before
