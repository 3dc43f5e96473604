"""The gradients of single samples."""

from collections.abc import Callable
from typing import Any

from minigrad.arrays.creation import zeros
from minigrad.autograd.gradients import grad
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tape.inspection import operations
from minigrad.engine.tape.modes import enable_grad, no_grad
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import check_module
from minigrad.nn.norm.batch_norm import RecurrentBatchNorm1d, _BatchNorm


def per_sample_grad(loss: Callable[..., Tensor], model: Any, x: Tensor, *targets: Tensor) -> dict[str, Tensor]:
    """Return the gradient of the loss of each sample with respect to each parameter of a module.

    Their mean over the samples is the gradient of the mean loss; each alone is what a norm per sample or differential
    privacy needs. Each sample is a batch of one, with a forward and a backward pass of its own: it takes as long as B
    steps with a batch of one. With dropout, each sample draws its own mask.

    Parameters
    ----------
    loss : callable
        ``loss(model(x[i : i + 1]), *(t[i : i + 1] for t in targets))``, a tensor of one element.
    model : nn.Module
        Its parameters that require grad are differentiated; none of their ``grad`` changes.
    x, *targets : Tensor
        ``(B, ...)``.

    Returns
    -------
    dict of str to Tensor
        For each name of `Module.named_parameters`, ``(B, *shape)``: plain numbers, without a history.

    Raises
    ------
    TypeError
        For arguments of another kind.
    ValueError
        If the batch sizes differ, if the loss has several elements, or if batch normalization takes its statistics from
        the batch, so that a sample alone has no gradient.

    Examples
    --------
    >>> model = mg.nn.Linear(2, 1, bias=False)
    >>> x, y = mg.tensor([[1.0, 0.0], [0.0, 2.0]]), mg.zeros((2, 1))
    >>> mg.per_sample_grad(lambda out, y: (out - y).sum(), model, x, y)["weight"].tolist()
    [[[1.0, 0.0]], [[0.0, 2.0]]]
    """
    if not callable(loss):
        raise TypeError(f"[per_sample_grad] expected a function as the loss, got {kind_of(loss)}")
    check_module("per_sample_grad", model)
    batch = (x, *targets)
    for t in batch:
        if not isinstance(t, Tensor):
            raise TypeError(f"[per_sample_grad] expected tensors of samples, got {kind_of(t)}")
        if not t.ndim or t.shape[0] != x.shape[0]:
            raise ValueError(
                f"[per_sample_grad] expected one batch size, got shapes {', '.join(str(t.shape) for t in batch)}"
            )
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm | RecurrentBatchNorm1d) and (module.training or module.running_mean is None):
            raise _coupling_error(f"{type(module).__name__} {name!r}")
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = {name: zeros((x.shape[0], *p.shape), dtype=p.dtype, device=p.device) for name, p in wanted.items()}
    for i in range(x.shape[0] if wanted else 0):
        with enable_grad():
            value = loss(model(x[i : i + 1]), *(t[i : i + 1] for t in targets))
            if not isinstance(value, Tensor):
                raise TypeError(f"[per_sample_grad] expected a loss that is a tensor, got {kind_of(value)}")
            if value.size != 1:
                raise ValueError(f"[per_sample_grad] expected one element as a sample's loss, got shape {value.shape}")
            if not value.requires_grad:
                continue
            if i == 0 and any(op.name == "batch_norm" and "μ" not in op.inputs for op in operations(value).values()):
                raise _coupling_error("batch_norm")
            grads = grad(value, list(wanted.values()), allow_unused=True)
        with no_grad():
            for total, g in zip(found.values(), grads, strict=True):
                if g is not None:
                    total[i] = g
    return found


def _coupling_error(what: str) -> ValueError:
    return ValueError(
        f"[per_sample_grad] expected samples that do not depend on each other, got {what} with statistics of the "
        f"batch: call model.eval(), which uses the running statistics, or use a layer or group normalization"
    )
