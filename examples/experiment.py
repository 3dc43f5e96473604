"""Code shared by the experiments: options, training over seeds, tables, claims and their verdicts, figure style."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import minigrad as mg
from minigrad import data, nn, optim, viz
from minigrad.nn import functional as F

# --- sources of the claims, as docs/claims/index.md names them --------------------------------------------------------

PAPER = "the LN paper"  # Ba, Kiros and Hinton 2016, Layer Normalization, arXiv:1607.06450
TUTORIAL = "the tutorial"  # senliuy, Layer Normalization; notebooks: github.com/senliuy/keras_layerNorm_mlp_lstm
OVERVIEW = "the overview"  # notes on 一文详解深度学习中的 Normalization

# --- options ---------------------------------------------------------------------------------------------------------


def options(
    doc: str, full: dict[str, Any], quick: dict[str, Any], norms: Iterable[str] = (), data: str = ""
) -> argparse.Namespace:
    """Parse the options of an experiment; `full` and `quick` are the defaults of the two settings.

    `data` is the help of ``--data``; options without a default or without a use are not offered.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a shorter setting: "
                        + ", ".join(f"{name} {_text(value)}" for name, value in quick.items()))  # fmt: skip

    def add(name: str, help: str, **more: Any) -> None:
        key = name.replace("-", "_")
        if key in full:
            help += f" (default: {_text(full[key])})"
            parser.add_argument("--" + name, help=help, nargs="+" if isinstance(full[key], list) else None, **more)

    add("epochs", "passes over the training data", type=int)
    add("batch-size", "samples per step", type=int)
    add("depths", "numbers of blocks", type=int)
    add("lags", "steps from the symbol to the answer", type=int)
    add("seeds", "runs of each kind, with consecutive seeds", type=int)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    if norms:
        parser.add_argument("--norm", nargs="+", choices=list(norms), default=list(norms), metavar="NAME",
                            help=f"which norms to run: {', '.join(norms)} (default: all)")  # fmt: skip
    if data:
        parser.add_argument("--data", type=Path, metavar="PATH", help=data)
    if "epochs" in full:
        parser.add_argument("--checkpoint", type=Path, metavar="FOLDER",
                            help="where to save runs after every epoch, to resume them if interrupted")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="where the arrays live (default: cpu)")
    parser.add_argument("--precision", choices=("highest", "high", "medium"), default="highest",
                        help="of products, as set_float32_matmul_precision takes it (default: highest)")  # fmt: skip
    name = Path(parser.prog).stem + ".png"
    parser.add_argument("--plot", default=name, metavar="FILE",
                        help="where to save the figure, '' for nowhere (default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    for name, value in {**full, **(quick if args.quick else {})}.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    if problem := _problem(args, full, data):
        parser.error(f"argument {problem}")
    mg.set_float32_matmul_precision(args.precision)
    return args


def _problem(args: argparse.Namespace, full: dict[str, Any], data: str) -> str:
    """Return the first option that would make a run fail, perhaps only at its end, and why."""
    for name in full:
        found, option = getattr(args, name), "--" + name.replace("_", "-")
        if isinstance(found, list) and len(found) != len(full[name]):
            return f"{option}: expected {len(full[name])} numbers, got {_text(found)}"
        if min(found if isinstance(found, list) else [found]) < 1:
            return f"{option}: expected 1 or more, got {_text(found)}"
    if args.seed < 0:
        return f"--seed: expected 0 or more, got {args.seed}"
    if data and args.data is not None and not args.data.exists():
        return f"--data: expected {data}, got nothing at {args.data}"
    if args.plot and not Path(args.plot).absolute().parent.is_dir():
        return f"--plot: expected a file in an existing folder, got {args.plot}"
    try:
        mg.zeros((), device=args.device)
    except (ValueError, RuntimeError) as error:
        return f"--device: {error}"
    return ""


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- data ------------------------------------------------------------------------------------------------------------

MNIST = "a folder with MNIST's four IDX files, to replace scikit-learn's digits"
Arrays = tuple[mg.Tensor, ...]


def images(args: argparse.Namespace, flat: bool = True, raw: bool = False) -> tuple[Arrays, Arrays]:
    """Load training and held-out images, (N, 784) or (N, 1, 28, 28), standardized or raw from 0 to 255, and labels."""
    sets = [data.mnist(args.data, split) if args.data else data.digits(split, 28) for split in ("train", "test")]
    (x, y), (test_x, test_y) = (images[:] for images in sets)
    mean, std = (0.0, 1 / 255) if raw else (x.mean(), x.std())
    shape = (-1, 784) if flat else (-1, 1, 28, 28)

    def ready(images: mg.Tensor, labels: mg.Tensor) -> Arrays:
        return ((images - mean) / std).reshape(shape).to(args.device), labels.to(args.device)

    return ready(x, y), ready(test_x, test_y)


NORMS: dict[str, Callable[[int], list[nn.Module]]] = {
    "none": lambda width: [],
    "batch": lambda width: [nn.BatchNorm1d(width)],
    "layer": lambda width: [nn.LayerNorm(width)],
}


def mlp(norm: str, *widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Build a network of these widths with norm and activation, in this order, after each layer but the last."""
    layers: list[nn.Module] = []
    for below, above in pairwise(widths[:-1]):
        layers += [nn.Linear(below, above), *NORMS[norm](above), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


# --- training --------------------------------------------------------------------------------------------------------


class Runs(NamedTuple):
    """The results of the runs of one kind: (seeds, steps), (seeds, epochs) and (seeds, probes, ...)."""

    losses: np.ndarray
    errors: np.ndarray
    probes: np.ndarray


Loss = Callable[[mg.Tensor, mg.Tensor], mg.Tensor]
Probe = Callable[[nn.Module, Arrays], np.ndarray]


def train(
    args: argparse.Namespace, name: str, build: Callable[[], nn.Module], sets: tuple[Arrays, Arrays],
    optimizer: Callable[[Any], optim.Optimizer], *, epochs: int | None = None, batch_size: int | None = None,
    loss: Loss = F.cross_entropy, error: Loss | None = None, probe: Probe | None = None, probe_every: int = 1,
    schedule: Callable[[optim.Optimizer], Any] | None = None, done: Callable[[nn.Module], object] | None = None,
) -> Runs:  # fmt: skip
    """Train one model per seed. The training and test sets consist of the model's inputs and, last, the targets.

    With ``--checkpoint``, everything is saved after every epoch, and an interrupted run resumes from there.

    `error`, by default the share of wrong classes, is computed on the test set after every epoch; `probe` is called
    with the model and the batch before every `probe_every`-th step; `schedule` makes the schedule of the optimizer's
    learning rate, which steps after every batch; `done` is called with each trained model.
    """
    epochs, batch_size = epochs or args.epochs, batch_size or args.batch_size
    dataset = data.ArrayDataset(*sets[0])
    steps = -(-len(dataset) // batch_size)
    found: dict[str, list[Any]] = {key: [] for key in Runs._fields}
    with tqdm(total=args.seeds * epochs * steps, desc=name, unit="step", dynamic_ncols=True, disable=None) as bar:
        for seed in range(args.seed, args.seed + args.seeds):
            mg.manual_seed(seed)
            model = build().to(args.device)
            descent = optimizer(model.parameters())
            loader = data.DataLoader(dataset, batch_size, shuffle=True, seed=seed)
            parts = {"model": model, "optimizer": descent, "loader": loader}
            rate = schedule(descent) if schedule else None
            if rate is not None:
                parts["schedule"] = rate
            run: dict[str, list[Any]] = {"losses": [], "errors": [], "probes": []}
            path = checkpoint(args, name, seed)
            if path and path.exists():
                run = mg.load_checkpoint(path, **parts)["run"]
                if loader.epoch > epochs:
                    raise ValueError(f"[train] expected a run of at most {epochs} epochs at {path}, got {loader.epoch}")
                bar.update(len(run["losses"]))
            while loader.epoch < epochs:
                for batch in loader:
                    if probe is not None and len(run["losses"]) % probe_every == 0:
                        run["probes"].append(probe(model, batch).tolist())
                    descent.zero_grad()
                    value = loss(model(*batch[:-1]), batch[-1])
                    value.backward()
                    descent.step()
                    if rate is not None:
                        rate.step()
                    run["losses"].append(value.item())
                    bar.update()
                run["errors"].append(evaluate(model, sets[1], error or wrong))
                bar.set_postfix(seed=seed, loss=f"{run['losses'][-1]:.4f}", test=f"{run['errors'][-1]:.4f}")
                if path:
                    mg.save_checkpoint(path, **parts, run=run)
            if done is not None:
                done(model)
            for key, values in run.items():
                found[key].append(values)
    return Runs(**{key: np.array(values) for key, values in found.items()})


def checkpoint(args: argparse.Namespace, name: str, seed: int) -> Path | None:
    """Return the file of one run in the folder given by ``--checkpoint``."""
    if args.checkpoint is None:
        return None
    args.checkpoint.mkdir(parents=True, exist_ok=True)
    run = re.sub(r"\W+", "-", f"{Path(sys.argv[0]).stem} {name} {seed}")
    return args.checkpoint / f"{run}.safetensors"


def wrong(outputs: mg.Tensor, labels: mg.Tensor) -> mg.Tensor:
    """Return the share of samples whose largest output is not the correct class."""
    return (outputs.argmax(axis=-1) != labels).astype(mg.float32).mean()


def evaluate(model: nn.Module, arrays: Arrays, error: Loss) -> float:
    """Return the mean error over a set, in evaluation mode and in batches of 512."""
    model.eval()
    total = 0.0
    with mg.no_grad():
        for *inputs, target in data.DataLoader(data.ArrayDataset(*arrays), 512):
            total += error(model(*inputs), target).item() * len(target)
    model.train()
    return total / len(arrays[-1])


# --- tables, claims --------------------------------------------------------------------------------------------------


def show(header: str, rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table; the header separates columns by |, and an array has one number per seed."""
    cells = [[name.strip() for name in header.split("|")], *([_cell(value) for value in row] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for first, *rest in cells:
        aligned = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        print("| " + " | ".join(aligned) + " |")
    print()


def _cell(value: object) -> str:
    if isinstance(value, np.ndarray):
        finite = value[np.isfinite(value)]
        if lost := len(value) - len(finite):
            diverged = f"{lost} of {len(value)} not finite"
            return f"{_cell(finite)}, {diverged}" if len(finite) else diverged
        return f"{value.mean():.3g} ± {value.std(ddof=1):.2g}" if len(value) > 1 else f"{value[0]:.3g}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def claim(says: str, source: str, criterion: str, measured: str, verdict: str | bool) -> None:
    """Print a claim, its source, the criterion to agree with it, the measurement, and the verdict."""
    if isinstance(verdict, bool):
        verdict = "agrees" if verdict else "disagrees"
    print(f"claim: {says}\nsource: {source}\ncriterion: {criterion}\nmeasured: {measured}\nverdict: {verdict}\n")


# One-sided 5 % points of Student's t for 1 to 9 degrees of freedom, then those of 10.
STUDENT = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)


def compare(says: str, source: str, quantity: str, **sides: np.ndarray) -> None:
    """Test the claim that the first side's quantity is below the second's, by a paired t test over the seeds.

    The verdict is "agrees" if the difference of the means is below zero by a one-sided test at 5 %, "disagrees" if it
    is above by the same test, and otherwise "undecided". A number that is not finite, from a run that diverged, counts
    as a very large one.
    """
    (low_name, low), (high_name, high) = sides.items()
    low_name, high_name = (name.replace("_", " ") for name in (low_name, high_name))
    measured = f"{low_name} {_cell(low)}, {high_name} {_cell(high)}"
    both = np.stack([low, high])
    large = 1e6 * np.abs(both[np.isfinite(both)]).max(initial=1)
    low, high = np.nan_to_num(both, nan=large, posinf=large, neginf=-large)
    verdict = "undecided"
    if len(low) > 1:
        margin = STUDENT[min(len(low) - 2, 9)] * (low - high).std(ddof=1) / math.sqrt(len(low))
        if abs((low - high).mean()) > margin:
            verdict = "agrees" if low.mean() < high.mean() else "disagrees"
    claim(says, source, f"{quantity}: {low_name} < {high_name}", measured, verdict)


# --- figures ---------------------------------------------------------------------------------------------------------

COLORS = {"none": "#6b7280", "batch": "#ea580c", "layer": "#2563eb", "group": "#16a34a", "other": "#9333ea"}
LABELS = {"none": "no norm", "batch": "BN", "layer": "LN", "group": "GN"}


@contextmanager
def figure(args: argparse.Namespace, title: str, columns: int, rows: int = 1) -> Iterator[list[Any]]:
    """Yield axes to draw on, and save the figure to the file given by ``--plot``."""
    import matplotlib

    matplotlib.use("Agg")  # write a file, open no window
    import matplotlib.pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with plt.style.context(viz.STYLE):
        layout = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1)
        size = (4.5 * columns, 0.6 + 3.2 * rows)
        canvas, axes = plt.subplots(rows, columns, figsize=size, layout=layout, squeeze=False)
        yield list(axes.flat)
        canvas.suptitle(title, x=0.01, ha="left", fontsize=13, weight="bold")
        if args.plot:
            canvas.savefig(args.plot, dpi=110)
        plt.close(canvas)


def band(axes: Any, x: np.ndarray, runs: np.ndarray, norm: str, label: str = "", **style: Any) -> None:
    """Plot the mean over the seeds of runs (seeds, n) with a norm, and a band from the lowest to the highest."""
    if len(runs) > 1:
        axes.fill_between(x, runs.min(0), runs.max(0), color=COLORS[norm], alpha=0.15, linewidth=0)
    axes.plot(x, runs.mean(0), color=COLORS[norm], linewidth=1.8, label=label or LABELS[norm], **style)


def smooth(runs: np.ndarray, points: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle step and the mean of up to `points` parts along the steps of runs (seeds, steps)."""
    parts = np.array_split(np.arange(runs.shape[1]), min(points, runs.shape[1]))
    return np.array([part.mean() + 1 for part in parts]), np.stack([runs[:, part].mean(1) for part in parts], 1)
