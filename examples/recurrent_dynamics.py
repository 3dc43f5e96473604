"""Does layer normalization keep the hidden state of an RNN and its gradient from growing or vanishing over time?

Model: an untrained tanh RNN with 128 units and no biases; W_hh from N(0, s²/128). It starts from a random state and has
no further input.
Measured: over 100 steps, the norms of h_t and of dL/dh_t for a loss L = v·h_T with a random v; their drift is the
slope of log10 of the norm over time, in absolute value and averaged over the scales s.
"""

import argparse

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad.nn import functional as F

STEPS, WIDTH, SCALES = 100, 128, (0.5, 1.0, 2.0, 4.0)


def norms_over_time(norm: str, scale: float, seed: int, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Return the norms of h_t and of dL/dh_t, t = 1 ... T, averaged over a batch."""
    rng = np.random.default_rng(seed)

    def normal(deviation: float, *shape: int) -> mg.Tensor:
        return mg.tensor(rng.normal(0.0, deviation, shape), device=args.device)

    weight = normal(scale / WIDTH**0.5, WIDTH, WIDTH)
    state, states = normal(1.0, args.batch_size, WIDTH).requires_grad_(), []
    for _ in range(STEPS):
        summed = F.linear(state, weight)
        state = mg.tanh(F.layer_norm(summed, (WIDTH,)) if norm == "layer" else summed)
        states.append(state)
    gradients = mg.grad((state * normal(1.0, *state.shape)).sum(), states)
    forward, backward = (
        [np.sqrt((array.detach().to("cpu").numpy() ** 2).sum(-1)).mean() for array in arrays]
        for arrays in (states, gradients)
    )
    return np.array(forward), np.array(backward)


def drift(sizes: np.ndarray) -> np.ndarray:
    """Decades per step, (scales, seeds, T) -> (seeds)."""
    slopes = np.polyfit(np.arange(STEPS), np.log10(sizes).reshape(-1, STEPS).T, 1)[0]
    return np.abs(slopes).reshape(sizes.shape[:2]).mean(0)


def main() -> None:
    args = ex.options(__doc__, {"seeds": 10, "batch_size": 32}, {"seeds": 5}, norms=("none", "layer"))
    found, rows = {}, []
    for norm in args.norm:
        runs = [[norms_over_time(norm, scale, args.seed + k, args) for k in range(args.seeds)] for scale in SCALES]
        found[norm] = forward, backward = tuple(np.moveaxis(np.array(runs), 2, 0))
        for scale, h, g in zip(SCALES, forward, backward, strict=True):
            rows.append((ex.LABELS[norm], scale, h[:, 0], h[:, -1], g[:, -1], g[:, 0]))
    ex.show("norm | scale of W | norm of h_1 | norm of h_T | norm of dL/dh_T | norm of dL/dh_1", rows)

    if len(found) == 2:
        for k, (says, of) in enumerate([
            ("in a standard RNN the summed inputs grow or shrink at every step; with LN they are more stable", "h_t"),
            ("... leading to exploding or vanishing gradients; with LN they are more stable", "dL/dh_t"),
        ]):  # fmt: skip
            ex.compare(says, f"{ex.PAPER}, section 3.1", f"drift of the norm of {of}, decades per step",
                       LN=drift(found["layer"][k]), no_norm=drift(found["none"][k]))  # fmt: skip

    with ex.figure(args, f"Hidden states and gradients over {STEPS} steps", 2) as panels:
        for axes, k, title in zip(panels, (0, 1), ("Norm of h_t", "Norm of dL/dh_t"), strict=True):
            for norm, sizes in found.items():
                for scale, style, runs in zip(SCALES, (":", "--", "-", "-."), sizes[k], strict=True):
                    steps = np.arange(1, STEPS + 1)
                    ex.band(axes, steps, runs, norm, f"{ex.LABELS[norm]}, s = {scale:g}", linestyle=style)
            axes.set(title=title, xlabel="step t", ylabel="L2 norm, mean over the batch", yscale="log")
        panels[0].legend(fontsize=8)


if __name__ == "__main__":
    main()
