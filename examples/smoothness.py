"""Does normalization smooth the loss surface?

Model: 784-128-128-128-128-10, ReLU, norms before the activations, SGD 0.1.
Measured as in Santurkar et al. 2018 (arXiv:1805.11604, figure 4), every tenth step: from the weights θ and their
gradient g, on the same batch, go to θ - ηg for six η from 0.05 to 0.5. The variation of the loss is the range of the
losses, that of the gradient the largest ‖g(θ - ηg) - g‖. The relative variations divide them by the loss at θ and by
‖g‖.
"""

from functools import partial

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

WIDTHS = (784, 128, 128, 128, 128, 10)
STEPS = np.linspace(0.05, 0.5, 6)
EVERY = 10


def variation(model: nn.Module, batch: ex.Arrays) -> np.ndarray:
    """Return the variation of the loss and of the gradient along the gradient, absolute and relative: (4,)."""
    x, y = batch
    parameters = list(model.parameters())

    def look() -> tuple[float, np.ndarray]:
        loss = F.cross_entropy(model(x), y)
        return loss.item(), np.concatenate([g.to("cpu").numpy().ravel() for g in mg.grad(loss, parameters)])

    buffers = {name: buffer.copy() for name, buffer in model.named_buffers()}
    start = [parameter.detach().copy() for parameter in parameters]
    loss, gradient = look()
    slopes = mg.grad(F.cross_entropy(model(x), y), parameters)
    losses, changes = [loss], []
    for eta in STEPS:
        with mg.no_grad():
            for parameter, value, slope in zip(parameters, start, slopes, strict=True):
                parameter.copy_(value - float(eta) * slope)
        there, other = look()
        losses.append(there)
        changes.append(np.linalg.norm(other - gradient))
    with mg.no_grad():
        for parameter, value in zip(parameters, start, strict=True):
            parameter.copy_(value)
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
    ranges = max(losses) - min(losses), max(changes)
    return np.array([*ranges, ranges[0] / loss, ranges[1] / np.linalg.norm(gradient)])


def main() -> None:
    args = ex.options(__doc__, {"epochs": 20, "batch_size": 64, "seeds": 5}, {"epochs": 8, "seeds": 3}, ex.NORMS,
                      data=ex.MNIST)  # fmt: skip
    sets = ex.images(args)
    found, rows = {}, []
    for norm in args.norm:
        runs = ex.train(args, ex.LABELS[norm], partial(ex.mlp, norm, *WIDTHS), sets, partial(optim.SGD, lr=0.1),
                        probe=variation, probe_every=EVERY)  # fmt: skip
        found[norm] = runs.probes
        rows.append((ex.LABELS[norm], *np.moveaxis(runs.probes.mean(1), 1, 0), 100 * runs.errors[:, -1]))
    ex.show("norm | variation of the loss | of the gradient | ÷ loss | ÷ norm of gradient | test error, %", rows)

    for norm in ("batch", "layer"):
        if {"none", norm} <= set(found):
            for k, what in enumerate(("loss", "gradient")):
                ex.compare(f"almost all norms smooth the loss surface: {ex.LABELS[norm]}, {what}",
                           f"{ex.TUTORIAL}, 2.3", f"variation of the {what} along the gradient, mean over the run",
                           **{ex.LABELS[kind]: found[kind][:, :, k].mean(1) for kind in (norm, "none")})  # fmt: skip

    with ex.figure(args, "How much changes along the gradient", 2, 2) as panels:
        titles = ("Variation of the loss", "Variation of the gradient", "... over the loss", "... over its norm")
        units = ("cross-entropy", "‖g(θ - ηg) - g‖", "range ÷ loss", "‖g(θ - ηg) - g‖ ÷ ‖g‖")
        for k, (axes, title, unit) in enumerate(zip(panels, titles, units, strict=True)):
            for norm, probes in found.items():
                x, y = ex.smooth(probes[:, :, k], 20)
                ex.band(axes, EVERY * (x - 1), y, norm)
            axes.set(title=title, xlabel="step", ylabel=unit, yscale="log")
        panels[2].legend(loc="lower right")


if __name__ == "__main__":
    main()
