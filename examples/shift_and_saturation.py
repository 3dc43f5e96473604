"""Do normalized layers see steadier inputs while they train, and do fewer of their units saturate?

Model: 784-128-128-128-128-128-10, norms before the activations, SGD 0.1.
Measured on a fixed batch of held-out images, every fifth step, in the last hidden layer: the share of saturated tanh
units (|h| > 0.95); and what arrives at the nonlinearity, whose drift is, per unit, the change of its mean and of its
standard deviation from one probe to the next, over its standard deviation. With ReLU; with tanh; and with tanh from
initial weights five times as large.
"""

from functools import partial

import numpy as np

import minigrad as mg
from experiment import (
    COLORS, LABELS, NORMS, OVERVIEW, PAPER, TUTORIAL, Arrays, band, compare, figure, images, mlp, options, show, train,
)  # fmt: skip
from minigrad import nn, optim

WIDTHS = (784, *[128] * 5, 10)
KINDS = {"tanh": (nn.Tanh, 1), "tanh, 5 W": (nn.Tanh, 5), "ReLU": (nn.ReLU, 1)}
EVERY = 5


def build(kind: str, norm: str) -> nn.Module:
    activation, scale = KINDS[kind]
    model = mlp(norm, *WIDTHS, activation=activation)
    with mg.no_grad():
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight *= scale
    return model


def main() -> None:
    args = options(__doc__, {"epochs": 20, "batch_size": 32, "seeds": 5}, {"epochs": 6, "seeds": 3}, NORMS, data="mnist")
    train_set, test_set = images(args)
    fixed = test_set[0][:256]

    def moments(model: nn.Module, batch: Arrays) -> np.ndarray:
        """Mean and deviation of every input of the last nonlinearity, and how often its tanh is beyond 0.95: (3, units)."""
        assert isinstance(model, nn.Sequential)
        with mg.no_grad():
            a = fixed
            for layer in list(model)[:-2]:
                a = layer(a)
            return np.stack([a.mean(0).numpy(), a.std(0).numpy(), (abs(mg.tanh(a)) > 0.95).astype(mg.float32).mean(0).numpy()])

    probes, rows = {}, []
    for kind in KINDS:
        for norm in args.norm:
            runs = train(args, f"{kind}, {LABELS[norm]}", partial(build, kind, norm), train_set,
                         test_set, partial(optim.SGD, lr=0.1), epochs=args.epochs, batch_size=args.batch_size,
                         probe=moments, probe_every=EVERY)  # fmt: skip
            probes[kind, norm] = runs.probes
            rows.append((kind, LABELS[norm], drift(runs.probes).mean(1), 100 * saturated(runs.probes)[:, -1],
                         100 * runs.errors[:, -1]))  # fmt: skip
    show("activation | norm | mean drift | units beyond 0.95 at the end, % | test error, %", rows)

    if {"none", "layer"} <= set(args.norm):
        for kind, says, source in (
            ("ReLU", "outputs of one layer change the next one's summed inputs in a correlated way, most with ReLU; LN "
             "reduces this covariate shift", f"{PAPER}, section 3"),
            ("tanh", "LN certainly reduces internal covariate shift", f"{TUTORIAL}, 2.3"),
        ):  # fmt: skip
            compare(says, source, f"mean drift of the last hidden layer's inputs, {kind}",
                    LN=drift(probes[kind, "layer"]).mean(1), no_norm=drift(probes[kind, "none"]).mean(1))  # fmt: skip
        for kind, how in (("tanh", "default"), ("tanh, 5 W", "large")):
            compare(f"without a norm the upper layers' inputs grow and saturate them ({how} initial weights)",
                    f"{OVERVIEW}, 1", "share of saturated tanh units in the last hidden layer at the end",
                    LN=saturated(probes[kind, "layer"])[:, -1], no_norm=saturated(probes[kind, "none"])[:, -1])  # fmt: skip

    with figure(args, "The last of five hidden layers while it learns", 3) as panels:
        for norm in args.norm:
            steps = EVERY * np.arange(probes["tanh", norm].shape[1])
            band(panels[0], steps[1:], drift(probes["tanh", norm]), LABELS[norm], COLORS[norm])
            band(panels[1], steps[1:], drift(probes["ReLU", norm]), LABELS[norm], COLORS[norm])
            for kind, style in (("tanh", "-"), ("tanh, 5 W", "--")):
                label = f"{LABELS[norm]}, {kind}"
                band(panels[2], steps, 100 * saturated(probes[kind, norm]), label, COLORS[norm], linestyle=style)
        panels[0].set(title="Drift of its inputs, tanh", xlabel="step", yscale="log")
        panels[1].set(title="Drift of its inputs, ReLU", xlabel="step", yscale="log")
        panels[2].set(title="Saturated tanh units", xlabel="step", ylabel="%")
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
