"""DataParallel: every rank computes the gradients of its own samples, and all get the mean.

The gradients of a backward pass are sent while it runs. The tape calls `DataParallel._collect` as soon as a parameter's
gradient is complete; small gradients are copied into buckets, large ones are sent from where they are. Buckets are sent
in the same order on every rank, each when it is full, whatever the order in which gradients become complete.

A rank's gradients count by its number n of samples: the gradient that enters the model's outputs is multiplied by n
size / Σ n, divided by it where it leaves the model through its inputs, and the mean over the ranks is taken at the
end. So losses that do not come from the outputs, such as a penalty of the weights, count once, what the ranks
exchange within the model is weighted too, and models may follow one another. The n of all ranks are exchanged while
the forward pass computes, together with a checksum of the parameters, so that ranks whose parameters differ get an
error and do not wait for each other.
"""

import json
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad.autograd.function import Function
from minigrad.distributed.buckets import Plan, description, key
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.random import get_state, set_state
from minigrad.engine.tape.hooks import HookHandle, call_after_pass
from minigrad.engine.tape.in_place import note_write
from minigrad.engine.tape.modes import no_grad
from minigrad.engine.tape.node import GradientError, is_grad_enabled
from minigrad.engine.tensor.tensor import Tensor
from minigrad.engine.tensor.trees import leaves, map_tensors
from minigrad.nn.module import Module
from minigrad.optim.optimizer import checks_before_step
from minigrad.ranks.communicator import Communicator, compare, find_device_error, find_unlike, ranks, wait, world

GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ divided by the golden ratio, odd: its multiples are far apart


class Counts:
    """The numbers of samples of all ranks in one forward pass, and the checksums of their parameters, on their way."""

    def __init__(self, count: float, checksum: int) -> None:
        self.own = np.array([count, checksum], np.float64)
        self.every = np.empty((world().size, 2))
        self.request = world().shares.Iallgather(self.own, self.every)

    def is_complete(self) -> bool:
        return self.request is None or self.request.Test()

    def wait(self) -> None:
        wait(self.request, "DataParallel")
        self.request = None


class Share:
    """The weight of a rank's samples of one forward pass, once the numbers of all ranks have arrived."""

    def __init__(self, owner: "DataParallel", plan: "Plan", counts: Counts, number: int) -> None:
        self.owner, self.plan, self.counts, self.number = owner, plan, counts, number

    def factor(self) -> float:
        """Return n size / Σ n."""
        counts, checksums = self.counts.every.T
        if self.counts.request is not None:
            self.counts.wait()
            if np.any(checksums != checksums[0]):
                compare("DataParallel", "the same parameters", self.plan.text)
            check_counts(world(), counts)
        return float(self.counts.own[0] * len(counts) / counts.sum())

    def enter(self) -> None:
        """Note that a backward pass goes through this forward pass, and keep the `DataParallel` until it ends."""
        self.owner._passed.add(self.number)
        self.owner._hook.passing = self.owner


def check_counts(world: Communicator, counts: np.ndarray) -> None:
    if not np.all(counts > 0):
        raise ValueError(
            f"[DataParallel] {world.where()}expected samples on every rank, got "
            f"{', '.join(f'{count:g}' for count in counts)}: use larger batches, or drop_last=True in the DataLoader"
        )


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Let this rank draw other numbers than the other ranks, and any amount of them; afterwards all agree again.

    The seed of each block, which no other block of any rank has, depends on the state of the generator alone, so the
    state that one rank saves is enough for all ranks to resume.
    """
    state = get_state()
    seed, position = state["seed"], state["position"]
    block = (position << 20) + world().rank + 1
    set_state({"seed": (seed + block * GOLDEN) % 2**64, "position": 0})
    try:
        yield
    finally:
        drawn = get_state()["position"] > 0  # all ranks have drawn numbers, or none
        set_state({"seed": seed, "position": position + drawn})


class Weighted(Function):
    """y = x; dx = g n size / Σ n at an output of the model, and g / (n size / Σ n) at an input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: Share, output: bool) -> Tensor:
        ctx.share, ctx.output = share, output
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        if ctx.output:
            ctx.share.enter()
        factor = ctx.share.factor()
        if factor != 1:
            g = g * factor if ctx.output else g / factor
        return g, None, None


def at_outputs(output: Any, share: Share) -> Any:
    """Weight the outputs of the model; anything that may hide a tensor is refused."""
    for leaf in leaves(output):
        if leaf is not None and not isinstance(leaf, (Tensor, int, float, str, np.ndarray)):
            raise TypeError(
                f"[DataParallel] {world().where()}expected tensors in tuples, lists or dicts as the outputs of the "
                f"model, got {kind_of(leaf)}, whose gradient would not be weighted"
            )
    return map_tensors(lambda y: Weighted.apply(y, share, True) if y.requires_grad else y, output)


def at_inputs(arguments: Any, share: Share) -> Any:
    if not any(isinstance(x, Tensor) and x.requires_grad for x in leaves(arguments)):
        return arguments
    return map_tensors(lambda x: Weighted.apply(x, share, False) if x.requires_grad else x, arguments)


class Hook:
    """The hook of a parameter. It keeps the `DataParallel` alive during a backward pass, as the tape does before."""

    def __init__(self, owner: "DataParallel") -> None:
        self.owner = weakref.ref(owner)
        self.passing: DataParallel | None = None

    def __call__(self, p: Tensor) -> None:
        owner = self.owner()
        if owner is not None:
            call_after_pass(self.end)
            owner._collect(p)

    def end(self) -> None:
        """Called when the backward pass has ended."""
        owner = self.owner()
        self.passing = None
        if owner is not None and owner._awaits():
            owner._finish()


def before_step(parameters: list[Tensor]) -> None:
    """Called by optimizers: their gradients have to be averaged."""
    for owner in list(unaveraged):
        owner._check_step({id(p) for p in parameters})


# Instances whose ranks have gradients of their own, because of `no_sync`.
unaveraged: "weakref.WeakSet[DataParallel]" = weakref.WeakSet()
# The instance of each parameter, by the id of the parameter, which its `DataParallel` keeps alive.
owners: "weakref.WeakValueDictionary[int, DataParallel]" = weakref.WeakValueDictionary()


class DataParallel(Module):
    """Trains one model on several ranks: gradients are averaged over the ranks while ``backward`` runs.

    All ranks begin with the parameters, buffers and random numbers of rank 0. Then every rank calls the model with its
    own samples and ``backward`` on the mean loss over them, and finds in every ``grad`` the gradient of the mean loss
    over the samples of all ranks, the same bits on all ranks, even if their numbers of samples differ. Without a
    launcher, it only calls the model.

    Parameters
    ----------
    model : Module
        This module has its parameters and buffers, under the names they have in `model`: a state dict or a
        checkpoint of one loads into the other.
    batch_axis : int
        The axis of the first tensor argument along which there are samples.
    count : callable, optional
        Takes the arguments of the model and returns what this rank counts, instead of the length of that axis: the
        number of tokens, if the loss is a mean over tokens.
    bucket_bytes : int
        Gradients are sent when so many bytes are ready; larger ones are sent alone, without a copy on the CPU.

    Raises
    ------
    TypeError
        If `model` is not a module, or has a `DataParallel` in it; when called, if there is no tensor among the
        arguments, or an output is not made of tensors in tuples, lists or dicts.
    ValueError
        On every rank, if models differ in the names, order, shapes or dtypes of parameters and buffers; if another
        `DataParallel` has a parameter of the model; in ``backward``, if a rank has no samples, or parameters were
        changed or frozen on some ranks only.
    GradientError
        On every rank, in the step of an optimizer, if gradients were accumulated within `no_sync` and not averaged. In
        ``backward``, on every rank, if a parameter has a gradient on some ranks only, if the ranks went through
        different forward passes, if a gradient grows after it was sent, as it may where a backward pass runs another
        one; with ``create_graph=True``.
    RuntimeError
        For a model on a GPU without NCCL, and if a launcher started the process but `init` was not called.

    Notes
    -----
    Gradients are averaged by ``backward``; `grad` returns this rank's gradients, for parameters with the rank's weight.
    What is averaged is what ``p.grad`` then holds, so a gradient that several passes accumulate is right. Buffers are
    not averaged: use `nn.SyncBatchNorm` for batch statistics over all ranks. While the model computes with gradients,
    each rank draws random numbers of its own, as for the masks of dropout; outside the model, all ranks draw the
    same.

    Examples
    --------
    >>> mg.distributed.size()
    1
    >>> model = mg.distributed.DataParallel(mg.nn.Linear(2, 1))
    >>> model(mg.ones((4, 2))).mean().backward()
    >>> model.module.bias.grad
    tensor([1.])
    """

    def __init__(
        self, model: Module, *, batch_axis: int = 0, count: Callable[..., float] | None = None,
        bucket_bytes: int = 1 << 18,
    ) -> None:  # fmt: skip
        super().__init__()
        problem: Exception | None = None
        try:
            self.batch_axis = integer("DataParallel", "batch_axis", batch_axis)
            self.bucket_bytes = integer("DataParallel", "bucket_bytes", bucket_bytes, 1)
            self._check(model, count)
        except Exception as error:  # raised below, on every rank
            problem = error
        world().agree("DataParallel", f"DataParallel with bucket_bytes={bucket_bytes}", problem)
        self.module, self.count = model, count
        self._syncing = True
        self._begin()
        if world().size > 1:
            owners.update((id(p), self) for p in model.parameters())
            if before_step not in checks_before_step:
                checks_before_step.append(before_step)
            self._begin_alike()

    def _check(self, model: Module, count: Any) -> None:
        where = world().where()
        if not isinstance(model, Module):
            raise TypeError(f"[DataParallel] {where}expected a module, got {kind_of(model)}")
        if count is not None and not callable(count):
            raise TypeError(f"[DataParallel] {where}expected a function or None as count, got {kind_of(count)}")
        if any(isinstance(inner, DataParallel) for inner in model.modules()):
            raise TypeError(f"[DataParallel] {where}expected a model without a DataParallel in it")
        if world().size == 1:
            return
        for device in {x.device for x in (*model.parameters(), *model.buffers())}:
            found = find_device_error(device)
            if found is not None:
                raise type(found)(f"[DataParallel] {where}{found}")
        for name, p in model.named_parameters():
            owner = owners.get(id(p))
            if owner is not None and any(p is other for other in owner.parameters()):
                raise ValueError(
                    f"[DataParallel] {where}expected parameters that no other DataParallel has, got {name} of one that "
                    f"exists: use that one, or delete it first"
                )

    def _begin(self) -> None:
        """Set the state of the passes, which is not part of a copy."""
        self._plan: Plan | None = None
        self._underway: list[Counts] = []
        self._calls = 0
        self._called = False  # whether the model was called since gradients were last averaged
        self._passed: set[int] = set()  # the forward passes through which backward passes have gone since then
        # The parameters whose gradients each rank has accumulated alone, by id, and their versions at that time.
        self._alone: dict[int, tuple[Tensor, int]] = {}
        self._hook = Hook(self)
        self._handles: list[HookHandle] = []

    def __getstate__(self) -> dict[str, Any]:
        passing = ("_plan", "_underway", "_calls", "_called", "_passed", "_alone", "_hook", "_handles")
        return {name: value for name, value in self.__dict__.items() if name not in passing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()
        if world().size > 1:
            owners.update((id(p), self) for p in self.parameters())

    def _begin_alike(self) -> None:
        """Give all ranks the parameters, buffers and random numbers of rank 0."""
        tensors = [*self.module.named_parameters(), *self.module.named_buffers()]
        text = "\n".join(f"{description(name, x)} requires_grad={x.requires_grad}" for name, x in tensors)
        compare("DataParallel", "the same parameters and buffers", text)
        with no_grad():
            for _, x in tensors:
                dense = x.detach() if x.is_contiguous() else x.detach().copy()
                note_write("DataParallel", x)
                world().engine(x.device).broadcast_(dense, 0)
                if not x.is_contiguous():
                    x.copy_(dense)
        state = json.loads(world().exchange_long("DataParallel", json.dumps(get_state()))[0])
        set_state(state)

    def _state(self, path: str) -> Iterator[tuple[str, Tensor]]:
        return self.module._state(path)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model; the gradients of its outputs will count by the number of samples."""
        if world().size == 1 or not is_grad_enabled():
            return self.module(*args, **kwargs)
        self._check_updates()
        count = self._samples(args, kwargs)
        self._calls += 1
        self._called = self._called or self._syncing
        plan = self._prepare()
        counts = Counts(count, plan.checksum)
        # MPI writes to them until they are complete, which the backward pass waits for, if there is one.
        self._underway = [counts, *(one for one in self._underway if not one.is_complete())]
        share = Share(self, plan, counts, self._calls)
        if not count > 0:
            share.factor()  # this raises, as it will on the other ranks
        args, kwargs = at_inputs((args, kwargs), share)
        with own_random_numbers():
            output = self.module(*args, **kwargs)
        return at_outputs(output, share)

    def _prepare(self) -> Plan:
        """Make sure that the tape will report every gradient, and return the plan to send them."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        parameters = [p for _, p in named]
        if self._plan is not None and self._plan.sent:
            raise RuntimeError(
                f"[DataParallel] {world().where()}an earlier backward pass was not finished, so the ranks no longer "
                f"agree: start again from a checkpoint"
            )
        if self._plan is None or self._plan.key != key(parameters):
            self._plan = Plan(named, self.bucket_bytes)
            owners.update((id(p), self) for p in parameters)
        self._plan.reset()  # a pass may have failed before anything was sent
        for handle in self._handles:
            handle.remove()
        self._handles = [p.register_post_accumulate_grad_hook(self._hook) for p in parameters]
        return self._plan

    def _samples(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        if self.count is not None:
            return float(self.count(*args, **kwargs))
        for x in leaves((args, kwargs)):
            if isinstance(x, Tensor) and x.ndim:
                if not -x.ndim <= self.batch_axis < x.ndim:
                    raise ValueError(
                        f"[DataParallel] {world().where()}expected samples along axis {self.batch_axis}, got an "
                        f"argument of shape {x.shape}"
                    )
                return x.shape[self.batch_axis]
        raise TypeError(f"[DataParallel] {world().where()}expected a tensor with samples among the arguments, got none")

    def _awaits(self) -> bool:
        """Return whether the gradients of the running pass are to be averaged."""
        return self._plan is not None and self._syncing and bool(self._called or self._passed)

    def _collect(self, p: Tensor) -> None:
        """Called by the tape with each parameter whose gradient is complete."""
        plan = self._plan
        if not self._syncing:
            self._alone.setdefault(id(p), (p, p.version))
            unaveraged.add(self)
        if plan is None or not self._awaits():
            return
        bucket = plan.home.get(id(p))
        if bucket is None:
            return  # p is no longer a parameter of the model
        if is_grad_enabled():
            raise GradientError(
                f"[DataParallel] {world().where()}gradients that are averaged over ranks cannot be differentiated: "
                f"expected create_graph=False"
            )
        if id(p) in plan.arrived:
            if bucket.request is not None:
                name = next(name for name, other in zip(plan.names, plan.parameters, strict=True) if other is p)
                raise GradientError(
                    f"[DataParallel] {world().where()}the gradient of {name} grew after it was sent: a backward "
                    f"pass ran within another one, and both reach this parameter"
                )
            return
        plan.arrived.add(id(p))
        bucket.missing -= 1
        if plan.sent:  # MPI makes progress while it is called
            plan.buckets[plan.sent - 1].request.progress()
        plan.send()

    def _finish(self) -> None:
        """Wait for all gradients."""
        plan, comm = self._plan, world().background.comm
        assert plan is not None
        plan.send(all_of_them=True)
        # If the ranks went through the same forward passes, these numbers are equal. That is so if, and only if, size
        # times the sum of their squares is the square of their sum.
        passes = sum(self._passed) % 2**20
        present = np.array([*(p.grad is not None for p in plan.parameters), passes, passes**2], np.int64)
        total = np.empty_like(present)
        request = comm.Iallreduce(present, total)
        with no_grad():
            for bucket in plan.buckets:
                bucket.receive(world().size)
        wait(request, "DataParallel")
        for bucket in plan.buckets:
            for p, part in zip(bucket.parameters, bucket.parts, strict=True):
                if p.grad is not None:
                    p.grad = part
                self._alone.pop(id(p), None)
        plan.reset()
        self._called = False
        self._passed.clear()
        if int(total[-1]) * world().size != int(total[-2]) ** 2:
            raise GradientError(
                f"[DataParallel] {world().where()}expected a backward pass through the same calls of the model on all "
                f"ranks, got others: call it equally often everywhere, and within minigrad.no_grad() to evaluate it"
            )
        self._check_present(plan, present[:-2], total[:-2])

    def _check_present(self, plan: Plan, present: np.ndarray, total: np.ndarray) -> None:
        """Raise on every rank if a parameter has a gradient on some ranks only."""
        lacking = np.flatnonzero(total % world().size)
        if not lacking.size:
            return
        every = np.empty((world().size, len(present)), np.int64)
        wait(world().background.comm.Iallgather(np.ascontiguousarray(present), every), "DataParallel")
        raise GradientError(
            f"[DataParallel] {world().where()}expected a gradient of each parameter on all ranks or on none, got none "
            + "; ".join(f"of {plan.names[k]} on {ranks(every[:, k].tolist(), 0)}" for k in lacking)
        )

    # ── accumulation ──

    def _check_step(self, parameters: set[int]) -> None:
        """Raise on every rank if an optimizer is about to use gradients that are not averaged."""
        alone = parameters & self._alone.keys()
        named = [(name, p) for name, p in self.module.named_parameters() if id(p) in alone]
        name = find_unlike([(name, p.grad) for name, p in named if p.grad is not None])
        if name:
            raise GradientError(
                f"[DataParallel] {world().where()}expected gradients that are averaged over the ranks in a step of the "
                f"optimizer, got another one of {name} on each rank, to which a backward pass within no_sync() has "
                f"added: let the last backward pass before a step run outside of no_sync()"
            )
        for _, p in named:
            del self._alone[id(p)]

    def _check_updates(self) -> None:
        """Raise on every rank if parameters were updated with such gradients in another way."""
        if not self._alone:
            unaveraged.discard(self)
            return
        written = [(name, p) for name, p in self.module.named_parameters()
                   if id(p) in self._alone and self._alone[id(p)][1] != p.version]  # fmt: skip
        name = find_unlike(written)
        if name:
            raise GradientError(
                f"[DataParallel] {world().where()}expected parameters that are the same on all ranks, got another "
                f"{name} on each: it was written after a backward pass within no_sync(), whose gradient was not "
                f"averaged. Start again from a checkpoint"
            )
        self._alone = {id(p): (p, p.version) for p, _ in self._alone.values() if p.grad is not None}

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes accumulate the gradients of this rank only.

        The first pass after the block averages what was accumulated. Every forward pass inside counts by its own
        number of samples. The last pass before a step of the optimizer must be outside of such a block, otherwise the
        step raises a `GradientError`; if the parameters are updated in another way, the next forward pass does.

        Examples
        --------
        >>> model = mg.distributed.DataParallel(mg.nn.Linear(2, 1))
        >>> with model.no_sync():
        ...     model(mg.ones((4, 2))).mean().backward()
        >>> model(mg.ones((4, 2))).mean().backward()
        >>> model.module.bias.grad
        tensor([2.])
        """
        before, self._syncing = self._syncing, False
        try:
            yield
        finally:
            self._syncing = before
