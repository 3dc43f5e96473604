"""Checks of errors, which every rank raises, and of runs that end early."""

import os

from helpers.ranks.models import digest, gradients, loss_of, own, parallel, raises, same_on_all

import minigrad as mg
from minigrad import data, distributed, nn, optim
from minigrad.distributed import DataParallel

# ── bad input: an error on every rank, and the run goes on ────────────────────────────────────────


def refused_calls(folder):
    r, n = distributed.rank(), distributed.size()
    who = rf"rank {r} of {n}: "
    with raises(RuntimeError, r"^\[init\] ", who, "expected one call, got a second"):
        distributed.init()
    with raises(ValueError, rf"^\[all_reduce_\] {who}expected the same call on all ranks, got\n  ranks? 0(, 2)?(, 3)?: "
                r"all_reduce_ sum of float32 \(2,\) on cpu\n  rank 1: all_reduce_ sum of float32 \(3,\)"):  # fmt: skip
        distributed.all_reduce_(mg.ones(3 if r == 1 else 2))
    with raises(ValueError, r"float32 \(2,\)(.|\n)*rank 1: .* float64 \(2,\)"):
        distributed.all_gather(mg.ones(2, dtype="float64" if r == 1 else "float32"))
    with raises(ValueError, r"all_reduce_ sum(.|\n)*rank 1: all_reduce_ max"):
        distributed.all_reduce_(mg.ones(2), "max" if r == 1 else "sum")
    with raises(ValueError, r"all_reduce sum(.|\n)*rank 1: barrier"):
        distributed.barrier() if r == 1 else distributed.all_reduce(mg.ones(2))
    with raises(ValueError, r"broadcast_ from rank 0 .*(.|\n)*rank 1: broadcast_ from rank 1"):
        distributed.broadcast_(mg.ones(2), 1 if r == 1 else 0)
    # what is wrong on one rank alone is an error on all
    message = r"rank 1 of \d: expected a contiguous tensor, got strides \(4, 8\) for shape \(2, 2\)"
    with raises(ValueError, message):
        distributed.all_reduce_(mg.ones((2, 2)).T if r == 1 else mg.ones((2, 2)))
    with raises(TypeError if r == 1 else ValueError, r"rank 1 of \d: expected a tensor, got "):
        distributed.all_reduce_([1.0] if r == 1 else mg.ones(2))
    with raises(TypeError, who, "expected numbers for 'sum', got bool"):
        distributed.all_reduce_(mg.ones(2, dtype="bool"))
    with raises(TypeError, who, "expected floats for 'mean', got int64"):
        distributed.all_reduce_(mg.ones(2, dtype="int64"), "mean")
    with raises(ValueError, who, "expected op 'sum', 'mean', 'max', 'min', got 'prod'"):
        distributed.all_reduce_(mg.ones(2), "prod")
    with raises(ValueError, who, "expected op 'sum', 'mean', got 'max'"):
        distributed.all_reduce(mg.ones(2), "max")
    with raises(ValueError, who, rf"expected a root from 0 to {n - 1}, got {n}"):
        distributed.broadcast_(mg.ones(2), n)
    with raises(ValueError, who, rf"expected a part for each of {n} ranks along axis 0, got shape \(7,\)"):
        distributed.reduce_scatter(mg.ones(7))
    with raises(mg.GradientError, who, "a tensor that requires grad cannot be written in place"):
        distributed.all_reduce_(mg.ones(2, requires_grad=True))
    assert distributed.all_reduce_(mg.ones(2)).tolist() == [n, n]


class Branches(nn.Module):
    """A model of two layers, of which a rank may leave out one."""

    def __init__(self, names=("near", "far")):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(3, 3))
        self.leave_out = False

    def forward(self, x):
        return self.near(x) if self.leave_out else self.near(x) + self.far(x)


def refused_models(folder):
    r, n = distributed.rank(), distributed.size()
    who = rf"^\[DataParallel\] rank {r} of {n}: "
    with raises(ValueError, who, r"expected the same parameters and buffers in the same order on all ranks, got, as "
                r"number 0, ranks? 0(, 2)?(, 3)?: near.weight \(3, 3\) float32 on cpu requires_grad=True; "
                r"rank 1: far.weight \(3, 3\)"):  # fmt: skip
        DataParallel(Branches(("far", "near") if r == 1 else ("near", "far")))
    with raises(ValueError, who, r"near.weight \(3, 3\) float32 .* rank 1: near.weight \(3, 3\) float64"):
        DataParallel(Branches().to("float64" if r == 1 else "float32"))
    with raises(ValueError, who, "as number 4, ", "nothing; rank 1: more.weight"):
        DataParallel(Branches(("near", "far", "more") if r == 1 else ("near", "far")))
    with raises(TypeError if r == 1 else ValueError, r"rank 1 of \d: expected a module, got "):
        DataParallel(3 if r == 1 else Branches())
    # a gradient that one rank lacks
    for limit in (1, 1 << 20):
        model = DataParallel(Branches(), bucket_bytes=limit)
        model.module.leave_out = r == 1
        with raises(mg.GradientError, who, "expected a gradient of each parameter on all ranks or on none, got none of "
                    "far.weight on rank 1; of far.bias on rank 1$"):  # fmt: skip
            model(mg.ones((2, 3))).sum().backward()
        model.module.leave_out = False
        model.zero_grad()
        model(mg.ones((2, 3))).sum().backward()  # the ranks still agree
        assert same_on_all(gradients(model))
    # parameters that are no longer the same
    if r == 1:
        model.module.far.weight.requires_grad_(False)
    with raises(ValueError, who, r"expected the same parameters in the same order on all ranks, got, as number 2, ",
                r"far.weight \(3, 3\) float32 on cpu; rank 1: far.bias"):  # fmt: skip
        model(mg.ones((2, 3))).sum().backward()
    with raises(ValueError, who, r"the same call on all ranks, got\n", r"bucket_bytes=1\n  rank 1: ", "bucket_bytes=2"):
        DataParallel(Branches(), bucket_bytes=1 << (r == 1))
    # arguments and outputs
    for error, says, options in (
        (TypeError, "expected a function or None as count, got int", {"count": 3}),
        (ValueError, "expected bucket_bytes >= 1, got 0", {"bucket_bytes": 0}),
    ):
        with raises(error if r == 1 else ValueError, rf"\[DataParallel\] .*{says}"):
            DataParallel(Branches(), **(options if r == 1 else {}))
    with raises(TypeError, who, "expected a model without a DataParallel in it"):
        DataParallel(DataParallel(Branches()))
    with raises(ValueError, who, "expected parameters that no other DataParallel has, got near.weight of one that"):
        DataParallel(model.module)
    with raises(ValueError, who, r"expected samples along axis 7, got an argument of shape \(2, 3\)"):
        DataParallel(Branches(), batch_axis=7)(mg.ones((2, 3)))
    hidden = DataParallel(Branches())
    hidden.module.forward = lambda x: {x}
    with raises(TypeError, who, "expected tensors in tuples, lists or dicts as the outputs of the model, got set"):
        hidden(mg.ones((2, 3)))
    # another forward pass than on the other ranks
    model = DataParallel(Branches())
    if r == 1:
        model(mg.ones((2, 3)))
    y = model(mg.ones((2, 3)))
    if r != 1:
        model(mg.ones((2, 3)))
    with raises(mg.GradientError, who, "expected a backward pass through the same calls of the model on all ranks"):
        y.sum().backward()
    # batches
    model = DataParallel(Branches())
    counts = ", ".join("0" if k == 1 else "2" for k in range(n))
    with raises(ValueError, who, rf"expected samples on every rank, got {counts}: use larger batches"):
        model(mg.ones((0 if r == 1 else 2, 3))).sum().backward()
    with raises(TypeError, who, "expected a tensor with samples among the arguments, got none"):
        model(3)
    with raises(mg.GradientError, who, "cannot be differentiated: expected create_graph=False"):
        DataParallel(Branches())(mg.ones((2, 3))).sum().backward(create_graph=True)
    with raises(ValueError, r"^\[DataLoader\] expected a sample of each batch for each of", "got the last batch of 1"):
        data.DataLoader(data.ArrayDataset(mg.arange(5)), 4, shard=(r, n))


def refused_steps(folder):
    """A step after gradients that `no_sync` has left on each rank alone, in any order of passes."""
    r, n = distributed.rank(), distributed.size()
    who = rf"^\[DataParallel\] rank {r} of {n}: "

    def averaged(model):
        model(mg.full((2, 3), 1.0 + r)).sum().backward()

    def alone(model):
        with model.no_sync():
            averaged(model)

    def zeroed(model):
        model.zero_grad()

    def averaged_by_hand(model):
        for p in model.parameters():
            distributed.all_reduce_(p.grad, "mean")

    def frozen(model):
        model.module.near.weight.requires_grad_(False)

    def update(model):
        optim.SGD(model.parameters(), 0.1).step()

    def update_by_hand(model):
        with mg.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        model.zero_grad()

    for fails, passes in (
        (True, [averaged, alone]), (True, [alone]), (True, [averaged, zeroed, alone]), (True, [alone, averaged, alone]),
        (True, [alone, averaged, update, alone]), (True, [alone, frozen, averaged]),
        (False, [alone, averaged]), (False, [averaged, alone, averaged]), (False, [alone, zeroed]),
        (False, [averaged, alone, zeroed, averaged]), (False, [alone, averaged_by_hand]),
    ):  # fmt: skip
        model = DataParallel(Branches())
        before = digest(p.detach().numpy() for p in model.parameters())
        for each in passes:
            each(model)
        if fails:
            message = r"expected gradients that are averaged .*, got another one of near.weight on each rank, to which"
            for _ in range(2):
                with raises(mg.GradientError, who, message):
                    update(model)
            assert (digest(p.detach().numpy() for p in model.parameters()) == before) == (update not in passes)
        else:
            update(model)
            assert same_on_all(p.detach().numpy() for p in model.parameters())
        del model
    # an update that no optimizer makes is noticed by the next call
    model = DataParallel(Branches())
    alone(model)
    update_by_hand(model)
    with raises(mg.GradientError, who, "expected parameters that are the same on all ranks, got another near.weight"):
        averaged(model)
    model = DataParallel(Branches())
    alone(model)
    model.load_state_dict({name: x * 2 for name, x in model.state_dict().items()})
    averaged(model)
    update(model)
    assert same_on_all(p.detach().numpy() for p in model.parameters())


# ── the ends of a run ─────────────────────────────────────────────────────────────────────────────


def uncaught(folder):
    if distributed.rank() == 1:
        raise ArithmeticError("of one rank")
    distributed.all_reduce_(mg.ones(2))


def killed(folder):
    if distributed.rank() == 1:
        os.kill(os.getpid(), 9)
    distributed.all_reduce_(mg.ones(2))


def no_backward(folder):
    """One rank goes on without its backward pass."""
    loss = loss_of(parallel("mlp"), "mlp", own)
    if distributed.rank() == 0:
        loss.backward()
    else:
        distributed.all_reduce_(mg.ones(2))
