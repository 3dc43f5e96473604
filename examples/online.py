"""Can a network learn from one sample at a time, as in online learning?

Model: 784-128-128-10, ReLU, norms before the activations, Adam 0.0003, batches of one image, every image once.
Measured: what BN says to a batch of one; training loss along the stream; error on the held-out images after it.
"""

from functools import partial

from experiment import COLORS, LABELS, NORMS, PAPER, band, claim, compare, figure, images, mlp, options, show, smooth, train
from minigrad import optim


def main() -> None:
    args = options(__doc__, {"epochs": 1, "batch_size": 1, "seeds": 10}, {"seeds": 3}, NORMS, data="mnist")
    train_set, test_set = images(args)
    found, refusal = {}, ""
    for norm in args.norm:
        try:
            found[norm] = train(args, LABELS[norm], partial(mlp, norm, 784, 128, 128, 10), train_set, test_set,
                                partial(optim.Adam, lr=0.0003), epochs=args.epochs, batch_size=args.batch_size)  # fmt: skip
        except ValueError as error:
            refusal = f"{LABELS[norm]} refuses: {error}"
    show("norm | mean loss, whole stream | last fifth | test error, %", [
        (LABELS[norm], runs.losses.mean(1), runs.losses[:, -(runs.losses.shape[1] // 5) :].mean(1), 100 * runs.errors[:, -1])
        for norm, runs in found.items()
    ])  # fmt: skip

    source = f"{PAPER}, section 1"
    if "batch" in args.norm:
        claim("BN cannot be applied to online learning", source, "an error for a batch of one sample in training",
              refusal or "no error", bool(refusal))  # fmt: skip
    if "layer" in found:
        claim("LN can be used with batches of one sample", source, "test error below 20 % (chance: 90 %) for every seed",
              f"at most {100 * found['layer'].errors[:, -1].max():.1f} %", bool(found["layer"].errors[:, -1].max() < 0.2))  # fmt: skip
    if {"layer", "none"} <= set(found):
        compare("and speeds learning up", source, "mean training loss along the stream",
                LN=found["layer"].losses.mean(1), no_norm=found["none"].losses.mean(1))  # fmt: skip

    with figure(args, "One image at a time, each seen once", 1) as (axes,):
        for norm, runs in found.items():
            band(axes, *smooth(runs.losses, 30), LABELS[norm], COLORS[norm])
        axes.set(title="Loss on the next image", xlabel="images seen", yscale="log")
        axes.legend()


if __name__ == "__main__":
    main()
