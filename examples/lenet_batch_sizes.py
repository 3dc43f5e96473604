"""How do batch and layer normalization change LeNet's convergence at a large and at a small batch?

Model: the tutorial's LeNet (convolutions with 6 and 16 channels, 5 x 5, max pooling, 120-84-10, tanh) with norms in its
two hidden dense layers, either after the activation, as in its code, or before it, as in its formula; and an MLP,
784-120-84-10, with norms before the activation. SGD 0.01 on pixels from 0 to 255, all as published.
Measured: training loss over the steps (a published epoch is 469 steps of 128 or 7,500 of 8 images), and error on the
held-out images.
"""

from functools import partial
from itertools import product

import experiment as ex
from minigrad import nn, optim

# the tutorial's published results on MNIST: training loss / accuracy with no norm, BN, LN
PUBLISHED = (
    (128, 1, "0.838 / 0.794", "0.486 / 0.857", "0.593 / 0.825"),
    (128, 10, "0.102 / 0.971", "0.082 / 0.976", "0.097 / 0.970"),
    (8, 1, "0.237 / 0.933", "0.345 / 0.892", "0.228 / 0.928"),
    (8, 5, "0.054 / 0.984", "0.122 / 0.963", "0.049 / 0.985"),
)
NETWORKS = ("LeNet, norm after", "LeNet, norm before", "MLP, norm before")


def build(network: str, norm: str) -> nn.Module:
    def hidden(below: int, above: int) -> list[nn.Module]:
        after = [*ex.NORMS[norm](above), nn.Tanh()] if "before" in network else [nn.Tanh(), *ex.NORMS[norm](above)]
        return [nn.Linear(below, above), *after]

    convolutions: list[nn.Module] = [
        nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
    ]  # fmt: skip
    below = [nn.Flatten()] if "MLP" in network else convolutions
    return nn.Sequential(*below, *hidden(784 if "MLP" in network else 256, 120), *hidden(120, 84), nn.Linear(84, 10))


def main() -> None:
    args = ex.options(__doc__, {"epochs": [80, 20], "batch_size": [128, 8], "seeds": 5},
                      {"epochs": [25, 3], "seeds": 3}, ex.NORMS, data=ex.MNIST)  # fmt: skip
    sets = ex.images(args, flat=False, raw=True)
    runs: dict[tuple[str, int, str], ex.Runs] = {}
    rows = []
    for network in NETWORKS:
        for size, epochs in zip(args.batch_size, args.epochs, strict=True):
            for norm in args.norm:
                if norm == "none" and network == NETWORKS[1]:
                    runs[network, size, norm] = runs[NETWORKS[0], size, norm]  # without a norm, both are the same
                    continue
                name = f"{network}, batch {size}, {ex.LABELS[norm]}"
                found = ex.train(args, name, partial(build, network, norm), sets, partial(optim.SGD, lr=0.01),
                                 epochs=epochs, batch_size=size)  # fmt: skip
                runs[network, size, norm] = found
                rows.append((network, size, ex.LABELS[norm], found.losses.mean(1), 100 * found.errors[:, -1]))
    ex.show("network | batch | norm | training loss, whole run | test error, %", rows)
    ex.show("published: batch | epoch | no norm | BN | LN", PUBLISHED)

    large, small = args.batch_size[0], args.batch_size[-1]
    if set(args.norm) == set(ex.NORMS):
        for network in NETWORKS[:2]:
            for says, size, low, high in (
                (f"at batch {large} BN speeds convergence up", large, "batch", "none"),
                (f"at batch {large} LN speeds convergence up", large, "layer", "none"),
                (f"at batch {large} BN is better than LN", large, "batch", "layer"),
                (f"at batch {small} BN slows convergence down", small, "none", "batch"),
                (f"at batch {small} LN is slightly better than no norm", small, "layer", "none"),
            ):
                sides = {ex.LABELS[norm]: runs[network, size, norm].losses.mean(1) for norm in (low, high)}
                ex.compare(f"{says} ({network})", f"{ex.TUTORIAL}, 3.1, figure 3",
                           "training loss, mean over the run", **sides)  # fmt: skip

    with ex.figure(args, "LeNet and an MLP with none, BN and LN", 3, len(args.batch_size)) as panels:
        for axes, (size, network) in zip(panels, product(args.batch_size, NETWORKS), strict=True):
            for norm in args.norm:
                ex.band(axes, *ex.smooth(runs[network, size, norm].losses, 30), norm)
            axes.set(title=f"{network}, batch {size}", xlabel="step", ylabel="training loss", yscale="log")
        panels[0].legend()


if __name__ == "__main__":
    main()
