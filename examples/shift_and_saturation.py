"""Do normalized layers have more stable inputs during training, and do fewer of their units saturate?

Model: 784-128-128-128-128-128-10, norms before the activations, SGD 0.1.
Measured on a fixed batch of held-out images, every fifth step, in the last hidden layer: the share of saturated tanh
units (|h| > 0.95), and the drift of the inputs of the nonlinearity: for each unit, the change of their mean and
standard deviation between probes, divided by their standard deviation. With ReLU, with tanh, and with tanh and initial
weights five times as large. BN fixes both moments of the batch, so its drift is near 0 by construction.
"""

from functools import partial

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import nn, optim

WIDTHS = (784, *[128] * 5, 10)
KINDS = {"tanh": (nn.Tanh, 1), "tanh, 5 W": (nn.Tanh, 5), "ReLU": (nn.ReLU, 1)}
EVERY = 5


def build(kind: str, norm: str) -> nn.Module:
    activation, scale = KINDS[kind]
    model = ex.mlp(norm, *WIDTHS, activation=activation)
    with mg.no_grad():
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight *= scale
    return model


def main() -> None:
    args = ex.options(__doc__, {"epochs": 20, "batch_size": 32, "seeds": 5}, {"epochs": 6, "seeds": 3}, ex.NORMS,
                      data=ex.MNIST)  # fmt: skip
    sets = ex.images(args)
    fixed = sets[1][0][:256]

    def moments(model: nn.Module, batch: ex.Arrays) -> np.ndarray:
        """Return mean, deviation and share of |tanh| > 0.95 of each input of the last nonlinearity: (3, units)."""
        assert isinstance(model, nn.Sequential)
        with mg.no_grad():
            a = fixed
            for layer in list(model)[:-2]:
                a = layer(a)
            beyond = (abs(mg.tanh(a)) > 0.95).astype(mg.float32)
            return np.stack([x.to("cpu").numpy() for x in (a.mean(0), a.std(0), beyond.mean(0))])

    probes, rows = {}, []
    for kind in KINDS:
        for norm in args.norm:
            runs = ex.train(args, f"{kind}, {ex.LABELS[norm]}", partial(build, kind, norm), sets,
                            partial(optim.SGD, lr=0.1), probe=moments, probe_every=EVERY)  # fmt: skip
            probes[kind, norm] = runs.probes
            rows.append((kind, ex.LABELS[norm], drift(runs.probes).mean(1), 100 * saturated(runs.probes)[:, -1],
                         100 * runs.errors[:, -1]))  # fmt: skip
    ex.show("activation | norm | mean drift | units beyond 0.95 at the end, % | test error, %", rows)

    if {"none", "layer"} <= set(args.norm):
        for kind, says, source in (
            ("ReLU", "outputs of one layer change the next one's summed inputs in a correlated way, most with ReLU; LN "
             "reduces this covariate shift", f"{ex.PAPER}, section 3"),
            ("tanh", "LN certainly reduces internal covariate shift", f"{ex.TUTORIAL}, 2.3"),
        ):  # fmt: skip
            sides = {ex.LABELS[norm]: drift(probes[kind, norm]).mean(1) for norm in ("layer", "none")}
            ex.compare(says, source, f"mean drift of the last hidden layer's inputs, {kind}", **sides)
        for kind, how in (("tanh", "default"), ("tanh, 5 W", "large")):
            sides = {ex.LABELS[norm]: 100 * saturated(probes[kind, norm])[:, -1] for norm in ("layer", "none")}
            ex.compare(f"without a norm upper layers' inputs grow and saturate them ({how} initial weights)",
                       f"{ex.OVERVIEW}, 1", "saturated tanh units in the last hidden layer at the end, %",
                       **sides)  # fmt: skip

    with ex.figure(args, "The last of five hidden layers while it learns", 3) as panels:
        for norm in args.norm:
            steps = EVERY * np.arange(probes["tanh", norm].shape[1])
            ex.band(panels[0], steps[1:], drift(probes["tanh", norm]), norm)
            ex.band(panels[1], steps[1:], drift(probes["ReLU", norm]), norm)
            for kind, style in (("tanh", "-"), ("tanh, 5 W", "--")):
                ex.band(panels[2], steps, 100 * saturated(probes[kind, norm]), norm,
                        f"{ex.LABELS[norm]}, {kind}", linestyle=style)  # fmt: skip
        panels[0].set(title="Drift of its inputs, tanh", xlabel="step", ylabel="change ÷ deviation", yscale="log")
        panels[1].set(title="Drift of its inputs, ReLU", xlabel="step", ylabel="change ÷ deviation", yscale="log")
        panels[2].set(title="Saturated tanh units", xlabel="step", ylabel="% of units")
        panels[0].legend()
        panels[2].legend(fontsize=8)


def drift(probes: np.ndarray) -> np.ndarray:
    """(seeds, probes, 3, units) -> (seeds, probes - 1)."""
    change = np.abs(np.diff(probes[:, :, :2], axis=1)).sum(2)
    return (change / np.maximum(probes[:, :-1, 1], 1e-6)).mean(-1)


def saturated(probes: np.ndarray) -> np.ndarray:
    """(seeds, probes, 3, units) -> (seeds, probes)."""
    return probes[:, :, 2].mean(-1)


if __name__ == "__main__":
    main()
