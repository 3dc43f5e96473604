"""Can a network learn from one sample at a time, as in online learning?

Model: 784-128-128-10, ReLU, norms before the activations, Adam 0.0003, batches of one image, every image once.
Measured: whether BN accepts a batch of one; training loss along the stream; error on the held-out images after it.
"""

from functools import partial

import experiment as ex
from minigrad import optim


def main() -> None:
    args = ex.options(__doc__, {"epochs": 1, "batch_size": 1, "seeds": 10}, {"seeds": 3}, ex.NORMS, data=ex.MNIST)
    sets = ex.images(args)
    found, refusal = {}, ""
    for norm in args.norm:
        try:
            build = partial(ex.mlp, norm, 784, 128, 128, 10)
            found[norm] = ex.train(args, ex.LABELS[norm], build, sets, partial(optim.Adam, lr=0.0003))
        except ValueError as error:
            if "[batch_norm]" not in str(error):
                raise
            refusal = f"{ex.LABELS[norm]} refuses: {error}"
    ex.show("norm | mean loss, whole stream | last fifth | test error, %", [
        (ex.LABELS[norm], losses.mean(1), losses[:, -len(losses[0]) // 5 :].mean(1), 100 * errors[:, -1])
        for norm, (losses, errors, _) in found.items()
    ])  # fmt: skip

    source = f"{ex.PAPER}, section 1"
    if "batch" in args.norm:
        ex.claim("BN cannot be applied to online learning", source, "an error for a batch of one sample in training",
                 refusal or "no error", bool(refusal))  # fmt: skip
    if "layer" in found:
        worst = 100 * float(found["layer"].errors[:, -1].max())
        ex.claim("LN can be used with batches of one sample", source,
                 "test error below 20 % (chance: 90 %) in every run", f"at most {worst:.1f} %", worst < 20)  # fmt: skip
    if {"layer", "none"} <= set(found):
        loss = {ex.LABELS[norm]: found[norm].losses.mean(1) for norm in ("layer", "none")}
        ex.compare("LN speeds training up, here with batches of one sample", source,
                   "mean training loss along the stream", **loss)  # fmt: skip

    with ex.figure(args, "One image at a time, each seen once", 1) as (axes,):
        for norm, runs in found.items():
            ex.band(axes, *ex.smooth(runs.losses, 30), norm)
        axes.set(title="Loss on the next image", xlabel="images seen", ylabel="cross-entropy", yscale="log")
        axes.legend()


if __name__ == "__main__":
    main()
