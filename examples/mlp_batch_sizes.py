"""Does layer normalization speed up an MLP, and does it tolerate small batches better than batch normalization?

Model: 784-1000-1000-10, ReLU, norms before the activations, Adam 0.001.
Measured: training loss over the steps and error on the held-out images, at a large and at a small batch.
"""

from functools import partial

import numpy as np

import experiment as ex
from minigrad import optim


def main() -> None:
    args = ex.options(__doc__, {"epochs": [60, 10], "batch_size": [128, 4], "seeds": 5},
                      {"epochs": [6, 1], "seeds": 3}, ex.NORMS, data=ex.MNIST)  # fmt: skip
    sets = ex.images(args)
    found, rows = {}, []
    for size, epochs in zip(args.batch_size, args.epochs, strict=True):
        for norm in args.norm:
            build = partial(ex.mlp, norm, 784, 1000, 1000, 10)
            runs = ex.train(args, f"{ex.LABELS[norm]}, batch {size}", build, sets, partial(optim.Adam, lr=0.001),
                            epochs=epochs, batch_size=size)  # fmt: skip
            found[norm, size] = runs
            errors = 100 * runs.errors
            rows.append((ex.LABELS[norm], size, runs.losses.mean(1), errors[:, -1], errors.min(1)))
    ex.show("norm | batch | mean training loss | test error, % | lowest", rows)

    large, small = args.batch_size[0], args.batch_size[-1]

    def loss(norm: str, size: int) -> np.ndarray:
        return found[norm, size].losses.mean(1)

    if set(args.norm) == set(ex.NORMS):
        source = f"{ex.PAPER}, section 6.6"
        ex.compare(f"at batch {large} LN converges faster than no norm", source, "training loss, mean over the run",
                   LN=loss("layer", large), no_norm=loss("none", large))  # fmt: skip
        ex.compare(f"LN converges faster than BN at batch {small}", source, "training loss, mean over the run",
                   LN=loss("layer", small), BN=loss("batch", small))  # fmt: skip
        ex.compare("LN is robust to the batch size, BN is not", source,
                   f"factor between the mean training losses at {small} and at {large}",
                   LN=loss("layer", small) / loss("layer", large),
                   BN=loss("batch", small) / loss("batch", large))  # fmt: skip

    with ex.figure(args, "784-1000-1000-10 with Adam", len(args.batch_size)) as panels:
        for axes, size in zip(panels, args.batch_size, strict=True):
            for norm in args.norm:
                ex.band(axes, *ex.smooth(found[norm, size].losses), norm)
            axes.set(title=f"Training loss, batch {size}", xlabel="step", ylabel="cross-entropy", yscale="log")
        panels[0].legend()


if __name__ == "__main__":
    main()
