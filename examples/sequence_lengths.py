"""How many samples of a batch are left at each time step?

Data: names of Unicode's characters, 1 to 15 words. Batches are drawn at random, or from samples sorted by length.
Measured: samples alive at each step, averaged over the batches that reach it; and at the last step of each batch, where
BN would compute its statistics from the remaining samples.
"""

import numpy as np

import experiment as ex
from minigrad import data


def alive(lengths: np.ndarray) -> np.ndarray:
    """(batches, samples) -> (batches, steps)."""
    return (lengths[:, :, None] > np.arange(lengths.max())).sum(1)


def main() -> None:
    args = ex.options(__doc__, {"batch_size": 32, "seeds": 10}, {"seeds": 3})
    names = data.character_names().texts
    lengths = np.array([len(name.split()) for name in names])
    lengths = lengths[: len(lengths) // args.batch_size * args.batch_size]
    orders = [np.random.default_rng(args.seed + k).permutation(len(lengths)) for k in range(args.seeds)]
    counts = {
        "other": [alive(lengths[order].reshape(-1, args.batch_size)) for order in orders],
        "layer": [alive(np.sort(lengths[order]).reshape(-1, args.batch_size)) for order in orders],
    }
    labels = {"other": "at random", "layer": "sorted by length"}

    def at_end(batches: np.ndarray) -> np.ndarray:
        """(batches, steps) -> (batches): alive at the last step that has any."""
        return batches[np.arange(len(batches)), (batches > 0).sum(1) - 1]

    last = {kind: np.array([at_end(run).mean() for run in runs]) for kind, runs in counts.items()}
    means = {kind: np.array([run.sum(0) / (run > 0).sum(0) for run in runs]) for kind, runs in counts.items()}
    ex.show("batches | alive at step 1 | at step 5 | at step 10 | at the last step of the batch", [
        (labels[kind], runs[:, 0], runs[:, 4], runs[:, 9], last[kind]) for kind, runs in means.items()
    ])  # fmt: skip
    worst = float(last["other"].max())
    ex.claim("at late steps a single sample may be left, too few for BN's statistics", f"{ex.TUTORIAL}, 1.2, figure 2",
             "fewer than 2 samples at the last step of a batch drawn at random, on average", f"{worst:.2f}",
             worst < 2)  # fmt: skip

    with ex.figure(args, f"Samples left in a batch of {args.batch_size}", 1) as (axes,):
        for kind, runs in means.items():
            ex.band(axes, np.arange(1, runs.shape[1] + 1), runs, kind, label=labels[kind], marker=".")
        axes.set(title="Alive, in batches that get there", xlabel="step", ylabel="samples", ylim=(0, None))
        axes.legend()


if __name__ == "__main__":
    main()
