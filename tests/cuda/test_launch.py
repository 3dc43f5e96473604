"""`launch` rejects arguments that a kernel does not declare."""

import threading

import cupy
import numpy as np
import pytest
from checks import refuses

import minigrad as mg
from minigrad.cuda import backend
from minigrad.cuda.launch import FOLDER, launch, parameters, source
from minigrad.engine.devices import gpu_memory
from minigrad.engine.devices.backend import Unary

X = ("elementwise.cu", "unary", "float32", 0)


def arguments(x, y):
    return Unary.EXP, False, x.size, 0, 1, 3, (x.size,), (7,), x, y


def tensors(*shapes, dtype="float32", device="cuda"):
    return [mg.zeros(shape, dtype=dtype, device=device) for shape in shapes]


def test_declarations_are_read():
    text = (
        'extern "C" __global__ void f(const T* x, Stride x_step, int64 n,\n        double* s, const Bool* k, void* y) {'
    )
    assert parameters(text) == {
        "f": [("T*", "x"), ("Stride", "x_step"), ("int64", "n"), ("double*", "s"), ("Bool*", "k"), ("void*", "y")]
    }


def test_parameters_that_kernels_share_are_read():
    text = (
        "#define N_PARAMETERS int64 n, \\\n    int m\n#define X_PARAMETERS N_PARAMETERS, const T* x\n"
        'extern "C" __global__ void __launch_bounds__(256, 1) f(X_PARAMETERS, T* y) {'
    )
    assert parameters(text) == {"f": [("int64", "n"), ("int", "m"), ("T*", "x"), ("T*", "y")]}


def test_every_kernel_is_declared_as_the_launch_point_reads_it():
    for path in FOLDER.glob("*.cu"):
        text = path.read_text(encoding="utf-8")
        assert len(source(path.name)[1]) == text.count("__global__") > 0


def test_a_kernel_runs():
    x, y = tensors(5, 5)
    launch(*X, 5, *arguments(x, y))
    np.testing.assert_array_equal(y.to("cpu").numpy(), 1)


def test_nothing_to_do_is_no_launch():
    x, y = tensors(0, 0)
    launch(*X, 0, *arguments(x, y))


def test_another_number_of_arguments():
    x, y = tensors(5, 5)
    refuses(TypeError, "unary", ["expected the arguments of", "got 9"], launch, *X, 5, *arguments(x, y)[:-1])


def test_a_number_of_more_than_32_bits():
    x, y = tensors(5, 5)
    with pytest.raises(OverflowError, match=r"^\[unary\] expected op to be a 32-bit int, got 4294967296"):
        launch(*X, 5, 1 << 32, *arguments(x, y)[1:])


def test_another_dtype():
    x, y = *tensors(5, dtype="float64"), *tensors(5)
    refuses(TypeError, "unary", "expected x to be float32, got float64", launch, *X, 5, *arguments(x, y))


def test_another_device():
    (x,), y = tensors(5), mg.zeros(5)
    refuses(ValueError, "unary", "expected y on cuda:0, got cpu", launch, *X, 5, *arguments(x, y))


def test_no_array():
    x = tensors(5)[0]
    with pytest.raises(TypeError, match=r"^\[unary\] expected y to be an array, got ndarray"):
        launch(*X, 5, *arguments(x, np.zeros(5, "float32")))


def test_a_shape_that_is_none():
    x, y = tensors(5, 5)
    for shape in ([5], (1,) * 9):
        with pytest.raises(TypeError, match=r"^\[unary\] expected shape to be a tuple of at most 8 lengths, got [\[(]"):
            launch(*X, 5, *arguments(x, y)[:6], shape, (7,), x, y)


def test_lists_of_tensors_that_do_not_match():
    def update(*lists):
        launch("optimizer.cu", "adagrad", "float32", 0, 256, ((*lists, None, None), 1024), *[0.1] * 12)

    p, g, s = (tensors(5, 7) for _ in range(3))
    refuses(ValueError, "adagrad", "expected 2 tensors in list 1, got 1", update, p, g[:1], s)
    with pytest.raises(ValueError, match=r"^\[adagrad\] expected 7 elements in tensor 1 of list 2, got 8"):
        update(p, g, [s[0], *tensors(8)])
    with pytest.raises(TypeError, match=r"^\[adagrad\] expected tensor 0 of list 1 to be float32, got float64"):
        update(p, tensors(5, 7, dtype="float64"), s)
    with pytest.raises(ValueError, match=r"^\[adagrad\] expected at most 64 tensors, got 65"):
        update(*([*one * 33][:65] for one in (p, g, s)))


def test_arguments_are_let_go():
    """Neither a launch nor one that is refused keeps the memory of its arguments."""
    freed = []

    class Block:
        def __init__(self, size):
            self.held = cupy.cuda.alloc(size)
            self.ptr = self.held.ptr

        def __del__(self):
            freed.append(self.ptr)

    y, wrong = *tensors(5), *tensors(5, dtype="float64")
    gpu_memory.Pool(0, Block, 0)
    for last in (y, wrong):
        x = tensors(5)[0]
        freed.clear()
        try:
            launch(*X, 5, *arguments(x, last))
        except TypeError:
            assert last is wrong
        assert not freed
        del x
        assert len(freed) == 1
    backend.registered.discard(0)
    backend.prepare(0)


def test_a_new_thread_launches_on_any_gpu():
    """A thread has no current GPU for the driver before its first call of CUDA."""
    found = []

    def work(device):
        x = mg.arange(4.0, device=device)
        found.append((mg.exp(x * 0) + x).to("cpu").tolist())

    for i in range(mg.cuda.device_count()):
        thread = threading.Thread(target=work, args=(f"cuda:{i}",))
        thread.start()
        thread.join()
    assert found == [[1.0, 2.0, 3.0, 4.0]] * mg.cuda.device_count()


def test_strides_where_none_are_declared():
    x, y = tensors((4, 6), 4)
    with pytest.raises(ValueError, match=r"^\[moments\] expected x to be contiguous, got strides \(4, 24\)"):
        launch("reduce.cu", "moments", "float32", 0, 256, 1, 6, 4, 1, 4, x.T, y, y)
