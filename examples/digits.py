"""Train a layer-normalized MLP and a layer-normalized RNN on scikit-learn's digits, and draw their curves.

The data are 1,797 real images of 8 x 8 pixels. The MLP sees an image as 64 numbers; the RNN reads it row by row,
eight time steps of eight numbers. A fifth of the images is held out for testing.

``mpiexec -n 4 python digits.py`` trains on four processes, each with a quarter of every batch.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import minigrad as mg
from minigrad import distributed, nn, optim, viz
from minigrad.nn import functional as F


class Data(NamedTuple):
    """Images (N, 8, 8), standardized by the training images, and labels (N,)."""

    train_x: mg.Tensor
    train_y: mg.Tensor
    test_x: mg.Tensor
    test_y: mg.Tensor


class Curves(NamedTuple):
    """The results of one training run: one loss per batch, one accuracy per epoch."""

    losses: list[float]
    accuracies: list[float]


class LNMLP(nn.Module):
    """64 -> hidden -> hidden -> 10 with LayerNorm and ReLU after both hidden layers."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, hidden), nn.LayerNorm(hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU(),
            nn.Linear(hidden, 10),
        )  # fmt: skip

    def forward(self, images: mg.Tensor) -> mg.Tensor:
        return self.layers(images.reshape(-1, 64))


class LNRNN(nn.Module):
    """h = tanh(LN(W_xh x + W_hh h + b)) over the eight rows, the last h -> 10."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(8, hidden, norm="layer", batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, images: mg.Tensor) -> mg.Tensor:
        states, _ = self.rnn(images)
        return self.head(states[:, -1])


MODELS = {"LN-MLP": LNMLP, "LN-RNN": LNRNN}


def load(seed: int, device: str) -> Data:
    """Load the digits, shuffle and split them."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8), labels[order]
    count = len(images) // 5
    mean, std = images[count:].mean(), images[count:].std()
    x = mg.tensor((images - mean) / std, dtype=mg.float32, device=device)
    y = mg.tensor(labels, dtype=mg.int64, device=device)
    return Data(x[count:], y[count:], x[:count], y[:count])


def accuracy(model: nn.Module, x: mg.Tensor, y: mg.Tensor) -> float:
    """Return the share of images whose largest output is the correct class."""
    with mg.no_grad():
        return (model(x).argmax(axis=-1) == y).astype(mg.float32).mean().item()


def train(name: str, model: nn.Module, data: Data, epochs: int, batch_size: int, lr: float) -> Curves:
    """Train with Adam and a one-cycle learning rate, showing a progress bar.

    Each process takes its part of every batch.
    """
    model = distributed.DataParallel(model)
    rank, size = distributed.rank(), distributed.size()
    steps = -(-len(data.train_y) // batch_size)
    optimizer = optim.Adam(model.parameters(), lr)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=epochs * steps)
    curves = Curves([], [])
    with tqdm(total=epochs * steps, desc=name, unit="step", dynamic_ncols=True, disable=rank > 0) as bar:
        for _ in range(epochs):
            order = mg.random.permutation(len(data.train_y)).to(data.train_y.device)
            for start in range(0, len(order), batch_size):
                whole = order[start : start + batch_size]
                batch = whole[rank::size]
                optimizer.zero_grad()
                loss = F.cross_entropy(model(data.train_x[batch]), data.train_y[batch])
                loss.backward()
                optimizer.step()
                scheduler.step()
                curves.losses.append(loss.item() * len(batch) / len(whole))
                bar.update()
            curves.accuracies.append(accuracy(model, data.test_x, data.test_y))
            mean, share = np.mean(curves.losses[-steps:]), curves.accuracies[-1]
            bar.set_postfix({"loss": f"{mean * size:.4f}", "accuracy": f"{share:.1%}"}, refresh=False)
    losses = distributed.all_reduce_(mg.tensor(curves.losses, dtype=mg.float64))
    return Curves(losses.tolist(), curves.accuracies)


def draw(found: dict[str, Curves], path: Path) -> None:
    """Plot the loss and held-out accuracy of every model over the epochs."""
    import matplotlib

    matplotlib.use("Agg")  # write a file, open no window
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    means, shares = {}, {}
    for name, (losses, accuracies) in found.items():
        means[name] = np.reshape(losses, (len(accuracies), -1)).mean(1)
        shares[f"{name}  {accuracies[-1]:.1%}"] = 100 * np.array(accuracies)
    with plt.style.context(viz.STYLE):
        layout = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1)
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout=layout)
        viz.curves(means, axes=left, ylabel="cross-entropy", log=True)
        viz.curves(shares, axes=right, ylabel="%")
        for (losses, accuracies), mean, share in zip(found.values(), left.lines[:], right.lines[:], strict=True):
            at = np.arange(1, len(losses) + 1) * len(accuracies) / len(losses)
            left.plot(at, losses, color=mean.get_color(), alpha=0.2, linewidth=0.8)
            right.plot(len(accuracies), 100 * accuracies[-1], "o", color=share.get_color(), markersize=5)
            for axes in (left, right):
                axes.set_xlim(0, len(accuracies) * 1.01)
        left.set(title="Training loss (pale: single batches)")
        right.set(title="Accuracy on the held-out fifth", ylim=(80, 100), yticks=range(80, 101, 5))
        figure.suptitle("Layer normalization on handwritten digits", x=0.01, ha="left", fontsize=14, weight="bold")
        figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        default=list(MODELS),
        metavar="NAME",
        help=f"which networks to train: {', '.join(MODELS)} (default: both)",
    )
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=128, help="units per hidden layer (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=3e-3, help="the highest learning rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and order (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="for the kernels (default: all cores)")
    parser.add_argument("--device", default="cpu", help="where the arrays live (default: %(default)s)")
    parser.add_argument(
        "--plot",
        default="digits.png",
        metavar="FILE",
        help="where to save the curves, '' for nowhere (default: %(default)s)",
    )
    args = parser.parse_args()
    distributed.init()
    if args.device == "cuda":
        args.device = f"cuda:{distributed.local_rank()}"
    if min(args.epochs, args.batch_size, args.hidden) < 1:
        parser.error("--epochs, --batch-size and --hidden must be at least 1")
    try:
        mg.zeros((), device=args.device)
    except (ValueError, RuntimeError) as error:
        parser.error(f"--device: {error}")
    if args.threads is not None:
        mg.set_num_threads(args.threads)

    data = load(args.seed, args.device)
    if args.batch_size < distributed.size() or 0 < len(data.train_y) % args.batch_size < distributed.size():
        parser.error(f"--batch-size: expected an image of every batch for each of {distributed.size()} processes")
    first = distributed.rank() == 0
    if first:
        print(f"{len(data.train_y)} images to train on, {len(data.test_y)} held out")
    found = {}
    for name in args.models:
        mg.manual_seed(args.seed)
        model = MODELS[name](args.hidden).to(args.device)
        found[name] = train(name, model, data, args.epochs, args.batch_size, args.lr)
        if first:
            print(f"{name}: accuracy on the held-out images {100 * found[name].accuracies[-1]:.1f} %")
    if args.plot and first:
        draw(found, Path(args.plot))
        print(f"curves: {args.plot}")


if __name__ == "__main__":
    main()
