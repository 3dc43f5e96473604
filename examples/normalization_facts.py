"""Computed facts about normalization: what each kind is invariant to, undoes, shares between samples, and costs.

Data are random numbers and scikit-learn's digits, 1,797 real images of 8 x 8 pixels. Sources:

  BN       batch normalization, Ioffe and Szegedy 2015, arXiv:1502.03167
  LN       layer normalization, Ba, Kiros and Hinton 2016, arXiv:1607.06450
  WN       weight normalization, Salimans and Kingma 2016, arXiv:1602.07868
  IN, GN   instance and group normalization, Ulyanov et al. 2016, arXiv:1607.08022; Wu and He 2018, arXiv:1803.08494
  RMSNorm  Zhang and Sennrich 2019, arXiv:1910.07467
  BN in recurrent networks, with statistics for each step: Cooijmans et al. 2016, arXiv:1603.09025
"""

import argparse
import math
from collections.abc import Callable, Iterable

import numpy as np
from sklearn.datasets import load_digits

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

Random = np.random.Generator
options = argparse.Namespace(device="cpu")


def tensor(values: object, dtype: str | None = None) -> mg.Tensor:
    """Create a tensor on the device given by --device."""
    return mg.tensor(values, dtype=dtype, device=options.device)


def array(x: mg.Tensor) -> np.ndarray:
    """Convert a tensor to a NumPy array."""
    return x.detach().to("cpu").numpy()


def show(header: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Print a table; the header separates columns by |, and floats have three significant digits."""
    cells = [[name.strip() for name in header.split("|")]]
    cells += [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *rest = (cell.ljust(width) if k == 0 else cell.rjust(width)
                        for k, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        print("  " + "   ".join([first, *rest]))


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits as standardized vectors of 64 numbers, and their labels."""
    images, labels = load_digits(return_X_y=True)
    return (images - images.mean()) / images.std(), labels


def normalize(kind: str, x: mg.Tensor, w: mg.Tensor, eps: float = 0.0) -> mg.Tensor:
    """Return the summed inputs x Wᵀ of a layer, normalized as in training."""
    if kind == "WN":
        return F.linear(x, w / mg.sqrt((w * w).sum(-1, keepdims=True)))
    a = F.linear(x, w)
    if kind == "BN":
        return F.batch_norm(a, None, None, training=True, eps=eps)
    if kind == "LN":
        return F.layer_norm(a, (a.shape[-1],), eps=eps)
    return F.rms_norm(a, (a.shape[-1],), eps=eps) if kind == "RMSNorm" else a


def change(a: mg.Tensor, b: mg.Tensor) -> float:
    """Return the largest difference between two tensors."""
    return float(abs(a.detach() - b.detach()).max())


def invariance(rng: Random) -> None:
    """Changes that leave the outputs as they are, at ε = 0 (LN, section 5.1)."""
    x, w = rng.standard_normal((8, 6)), rng.standard_normal((5, 6))
    row, sample, v = np.eye(5)[:, :1], np.eye(8)[:, :1], rng.standard_normal(6)
    changes = {
        "W scaled": (x, 3 * w), "W re-centred": (x, w + v), "one row scaled": (x, w * (1 + 2 * row)),
        "data scaled": (3 * x, w), "data shifted": (x + v, w), "one sample scaled": (x * (1 + 2 * sample), w),
        "W times -1": (x, -w),
    }  # fmt: skip
    kinds = ("BN", "WN", "LN", "RMSNorm")
    found = {}
    for kind in kinds:
        y = normalize(kind, tensor(x), tensor(w))
        found[kind] = [change(normalize(kind, tensor(a), tensor(b)), y) for a, b in changes.values()]
    show("no change by | " + " | ".join(changes), [
        (kind, *("yes" if error < 1e-10 else f"no ({error:.2f})" for error in found[kind])) for kind in kinds
    ])  # fmt: skip
    print("  In parentheses: the largest change. Factors must be positive: -W flips the sign of every output.")


def by_hand(rng: Random) -> None:
    """Two examples to check by hand (ε = 0): BN, algorithm 1, and LN, equations 3 and 4."""
    x = tensor([[1.0, 2.0, 0.0], [3.0, 2.0, 4.0], [5.0, 6.0, 0.0], [7.0, 6.0, 12.0]], dtype="float64")
    y = F.batch_norm(x, None, None, training=True, eps=0.0)
    pairs = zip(x.tolist(), array(y).round(4).tolist(), strict=True)
    show("four samples, three channels | BN", pairs)
    print("  Every channel has mean 4; the variances are 5, 4 and 24.")
    one = tensor([1.0, 2.0, 6.0], dtype="float64")
    show("one sample of three | LN", [(one.tolist(), array(F.layer_norm(one, (3,), eps=0.0)).round(4).tolist())])
    print("  The mean is 3 and the variance 14/3, so the outputs are (-2, -1, 3) times the square root of 3/14.")


def epsilon(rng: Random) -> None:
    """The place of ε: (x - μ)/√(σ² + ε), and the misprint (x - μ)/(σ² + √ε), which does not standardize."""
    row = rng.standard_normal(64)
    row = (row - row.mean()) / row.std()
    show("σ of the input | σ of LN | σ of the misprint", [
        (sigma, array(F.layer_norm(tensor(sigma * row), (64,))).std(),
         float((sigma * row / (sigma**2 + math.sqrt(1e-5))).std()))
        for sigma in (0.01, 0.1, 1.0, 10.0)
    ])  # fmt: skip


def restoring(rng: Random) -> None:
    """Weight and bias can restore BN's input (BN, section 3), but not LN's: LN(x) = LN(2x)."""
    x = tensor(3 + 2 * rng.standard_normal((6, 5)))
    gain, shift = mg.sqrt(x.var(0)), x.mean(0)
    back = F.batch_norm(x, None, None, gain, shift, training=True, eps=0.0)
    twice = change(F.layer_norm(x, (5,), eps=0.0), F.layer_norm(2 * x, (5,), eps=0.0))
    rows = [("BN(x) with γ = σ, β = μ, and x", change(back, x)), ("LN(x) and LN(2x)", twice)]
    show(" | largest difference", [*rows, ("x and 2x", change(x, 2 * x))])


def moments(rng: Random) -> None:
    """Only two moments match, and standardizing is not whitening."""
    x = digits()[0].reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16)
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    sides = rng.choice([-1.0, 1.0], (1000, 16)) + 0.05 * rng.standard_normal((1000, 16))
    rows: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "as it is": lambda a: a,
        "BN": lambda a: array(F.batch_norm(tensor(a), None, None, training=True, eps=0.0)),
        "LN": lambda a: array(F.layer_norm(tensor(a), (16,), eps=0.0)),
    }
    white = (x - x.mean(0)) @ (vectors / np.sqrt(values)) @ vectors.T

    def correlation(a: np.ndarray) -> float:
        return float(np.abs(np.corrcoef(a.T) - np.eye(16)).max())

    def middle(a: np.ndarray) -> str:
        return f"{(np.abs((a - a.mean(0)) / a.std(0)) < 0.25).mean():.1%}"

    show("  | largest correlation, digits | two peaks: share within σ/4 of the mean",
         [(name, correlation(f(x)), middle(f(sides))) for name, f in rows.items()]
         + [("whitened (ZCA) / normal", correlation(white), middle(rng.standard_normal((1000, 16))))])  # fmt: skip


def narrow_layers(rng: Random) -> None:
    """LN of one unit is 0 and of two units is ±1: little information is left in a narrow layer."""
    samples = [rng.standard_normal(width) for width in (1, 1, 2, 2, 3, 3)]
    show("one sample | LN", [
        (x.round(2).tolist(), array(F.layer_norm(tensor(x), x.shape)).round(2).tolist()) for x in samples
    ])  # fmt: skip


def batch_mates(rng: Random) -> None:
    """How much a sample's output depends on its batch: BN's noise falls with 1/√batch, LN has none (LN, section 1)."""
    x = digits()[0] @ rng.standard_normal((64, 8)) / 8

    def spread(norm: Callable[[mg.Tensor], mg.Tensor], size: int) -> float:
        batches = (np.concatenate([x[:1], x[rng.integers(1, len(x), size - 1)]]) for _ in range(200))
        outputs = np.stack([array(norm(tensor(batch))[0]) for batch in batches])
        return float((outputs - outputs[0]).std(0).mean())

    show("batch | BN: deviation | LN: deviation", [
        (size, spread(lambda a: F.batch_norm(a, None, None, training=True), size),
         spread(lambda a: F.layer_norm(a, (8,)), size)) for size in (4, 16, 64, 256)
    ])  # fmt: skip
    try:
        nn.BatchNorm1d(8).to(options.device)(tensor(np.zeros((1, 8)), "float32"))
    except ValueError as error:
        print(f"  A batch of one in training: {error}")


def parts_of_a_batch(rng: Random) -> None:
    """Gradients accumulated over four parts, or averaged over four machines, compared to those of the whole batch."""
    x = tensor(digits()[0][:32].reshape(32, 8, 8))
    labels = tensor(digits()[1][:32])
    norms = {"LN": nn.LayerNorm((8, 8)), "GN": nn.GroupNorm(2, 8), "IN": nn.InstanceNorm1d(8),
             "RMSNorm": nn.RMSNorm((8, 8)), "BN": nn.BatchNorm1d(8)}  # fmt: skip
    rows = []
    for kind, norm in norms.items():
        first, head = (nn.Linear(8, n, dtype="float64").to(options.device) for n in (8, 10))
        norm.to("float64").to(options.device)
        grads = []
        for parts in (1, 4):
            first.zero_grad()
            for rows_x, rows_y in zip(mg.split(x, parts), mg.split(labels, parts), strict=True):
                (F.cross_entropy(head(mg.tanh(norm(first(rows_x))).mean(-1)), rows_y) / parts).backward()
            assert first.weight.grad is not None
            grads.append(array(first.weight.grad))
        rows.append((kind, float(np.linalg.norm(grads[1] - grads[0]) / np.linalg.norm(grads[0]))))
    show("norm | relative error of dL/dW", rows)


def learning_rate(rng: Random) -> None:
    """The angle of one step of gradient descent falls with 1/‖W‖²: large weights learn slowly (LN, section 5.2)."""
    x, labels = digits()
    start, rows = rng.standard_normal((10, 64)) / 8, []
    for kind in ("BN", "LN", "WN", "none"):
        angles = []
        for factor in (1.0, 2.0, 4.0):
            w = nn.Parameter(tensor(factor * start))
            F.cross_entropy(normalize(kind, tensor(x[:256]), w), tensor(labels[:256])).backward()
            optim.SGD([w], lr=0.05).step()
            after = array(w)
            aside = after - start * (after * start).sum() / (start * start).sum()
            angles.append(math.degrees(math.asin(np.linalg.norm(aside) / np.linalg.norm(after))))
        rows.append((kind, *(f"{angle:.4f}°" for angle in angles), angles[0] / angles[2]))
    show("norm | W | 2W | 4W | ratio of first to last", rows)


def recurrence(rng: Random) -> None:
    """Sequences of 10 steps in training, then of 40: LN needs no statistics for a step, BN reuses the last ones."""
    rows = []
    for norm in ("layer", "batch"):
        rnn = nn.RNN(8, 32, norm=norm, max_length=10 if norm == "batch" else None).to(options.device)
        short, long = (tensor(rng.standard_normal((steps, 64, 8)), dtype="float32") for steps in (10, 40))
        for _ in range(20):
            rnn(short)
        size = np.sqrt((array(rnn.eval()(long)[0]) ** 2).mean((1, 2)))
        statistics = sum(buffer.size for name, buffer in rnn.named_buffers() if "running" in name)
        other = mg.concat([short[:, :1], 2 * short[:, 1:]], 1)
        moved = change(rnn.train()(short)[0][:, 0], rnn(other)[0][:, 0])
        rows.append((norm, statistics, *(float(size[t - 1]) for t in (5, 10, 20, 40)), moved))
    show("norm | running statistics | size of h at 5 | at 10 | at 20 | at 40 | moved by its mates in training", rows)


def folding(rng: Random) -> None:
    """BN with fixed statistics and WN can be folded into a linear layer; LN cannot (LN, section 4)."""
    x = tensor(digits()[0][:, 18:34])
    linear = nn.Linear(16, 8, dtype="float64").to(options.device)
    bn = nn.BatchNorm1d(8, dtype="float64").to(options.device)
    bn(linear(x))
    bn.eval()
    normed = nn.utils.weight_norm(nn.Linear(16, 8, dtype="float64").to(options.device))
    outputs = {"BN": bn(linear(x)), "WN": normed(x), "LN": F.layer_norm(linear(x), (8,))}
    folded = {"BN": nn.utils.fold_batch_norm(linear, bn)(x), "WN": nn.utils.remove_weight_norm(normed)(x)}
    design = np.concatenate([array(x), np.ones((len(x), 1))], 1)
    rows = []
    for kind, output in outputs.items():
        y = array(output)
        left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        share = (left**2).sum() / ((y - y.mean(0)) ** 2).sum()
        rows.append((kind, change(folded[kind], output) if kind in folded else "cannot", f"{share:.1%}"))
    show("norm | folded layer differs by | variance that no affine map explains", rows)


FACTS: dict[str, Callable[[Random], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        invariance, by_hand, epsilon, restoring, moments, narrow_layers, batch_mates, parts_of_a_batch, learning_rate,
        recurrence, folding,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--facts",
        nargs="+",
        choices=FACTS,
        default=list(FACTS),
        metavar="NAME",
        help=f"which of them: {', '.join(FACTS)} (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where the arrays live (default: %(default)s)")
    parser.parse_args(namespace=options)
    for name in options.facts:
        mg.manual_seed(options.seed)
        print(f"{name}\n{FACTS[name].__doc__}")
        FACTS[name](np.random.default_rng(options.seed))
        print()


if __name__ == "__main__":
    main()
