"""Checks of the calls of NCCL."""

import sys

import numpy as np
from helpers.ranks.models import MODELS, TARGETS, build, distance, gradients, loss_of, own, penalty, raises, same_on_all
from helpers.ranks.refusals import Branches
from mpi4py import MPI

import minigrad as mg
from minigrad import distributed
from minigrad.distributed import DataParallel
from minigrad.nn import functional as F
from minigrad.ranks import communicator


def gpus(folder):
    """Operations and training on GPUs, by the calls of NCCL, equal those on the CPU."""
    r, n = distributed.rank(), distributed.size()
    device = f"cuda:{distributed.local_rank()}"
    x = mg.tensor([1.0, r], device=device)
    for op, expected in {
        "sum": [n, n * (n - 1) / 2], "mean": [1, (n - 1) / 2], "max": [1, n - 1], "min": [1, 0],
    }.items():  # fmt: skip
        y = distributed.all_reduce_(x.copy(), op)
        assert y.device == device
        assert y.tolist() == expected, op
    for dtype in ("float64", "int32", "int64"):
        assert distributed.all_reduce_(mg.ones(3, dtype=dtype, device=device)).tolist() == [n] * 3
    assert distributed.broadcast_(mg.tensor([r > 0, True], device=device), 0).tolist() == [False, True]
    assert distributed.all_gather(mg.tensor([r, 5], device=device)).tolist() == [[k, 5] for k in range(n)]
    parts = mg.arange(float(n), device=device).expand_dims(1) * mg.ones(2, device=device) + r
    assert distributed.reduce_scatter(parts).tolist() == [n * r + n * (n - 1) / 2] * 2
    with raises(mg.CaptureError, "NCCL's allReduce"):
        mg.capture(distributed.all_reduce, warmup=0)(x)
    with raises(ValueError, "on cpu(.|\n)*on cuda"):
        distributed.all_reduce_(mg.ones(2, device="cpu" if r == 0 else device))
    X, expected = MODELS["mlp"][1][0], build("mlp")
    loss_of(expected, "mlp").backward()
    model = DataParallel(build("mlp", r).to(device), bucket_bytes=1 << 9)
    outputs = model(own(X).to(device))
    (F.cross_entropy(outputs, own(TARGETS).to(device)) + penalty(model)).backward()
    found = [p.grad.to("cpu").numpy() for p in model.parameters()]
    assert distance(found, gradients(expected)) < 1e-12
    assert same_on_all(found)


def one_gpu(folder):
    """Every call of NCCL, with a communicator of one rank, leaves or copies the tensor."""
    engine = communicator.Nccl(MPI.COMM_WORLD, "cuda:0")
    for dtype in engine.types:
        values = np.array([[1, 0, 1], [0, 1, 1]], dtype)
        for call in (
            lambda x: engine.reduce_(x, "sum"), lambda x: engine.reduce_(x, "max"), lambda x: engine.reduce_(x, "min"),
            lambda x: engine.broadcast_(x, 0), lambda x: engine.start(x).wait(),
        ):  # fmt: skip
            x = mg.tensor(values, device="cuda:0")
            call(x)
            assert np.array_equal(x.to("cpu").numpy(), values), dtype
        x = mg.tensor(values, device="cuda:0")
        for call in (engine.gather, lambda x, y: engine.scatter(x, y, "sum")):
            y = mg.zeros_like(x)
            call(x, y)
            assert np.array_equal(y.to("cpu").numpy(), values), dtype


def without_nccl(folder):
    """The error is the same on every rank, whether a rank has a GPU's tensor or not."""
    r, n = distributed.rank(), distributed.size()
    sys.modules["cupy.cuda.nccl"] = sys.modules["cupy.cuda"].nccl = None
    with raises(RuntimeError, rf"^\[all_reduce_\] rank {r} of {n}: tensors on cuda:0 are exchanged by NCCL, but "):
        distributed.all_reduce_(mg.ones(2, device="cuda"))
    with raises(RuntimeError, rf"^\[DataParallel\] rank {r} of {n}: tensors on cuda:0 are exchanged by NCCL"):
        DataParallel(Branches().to("cuda"))
    assert distributed.all_reduce_(mg.ones(2)).tolist() == [n, n]
