"""A loop that trains a network, to be read in a minute and copied where it does not fit."""

import copy
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Never

from minigrad.engine.ops.arguments import integer
from minigrad.nn.module import Module
from minigrad.nn.utils.parameters import clip_grad_norm_
from minigrad.optim.lr_scheduler import ReduceLROnPlateau
from minigrad.saving.checkpoint import load_checkpoint, save_checkpoint
from minigrad.tools.files import Path
from minigrad.train.measures import Means, Metric, Row, batches, evaluate


def fit(
    model: Module, loader: Iterable[Any], loss: Metric, optimizer: Any, epochs: int, *,
    validation: Iterable[Any] | None = None, metrics: Mapping[str, Metric] | None = None, schedule: Any = None,
    clip: float | None = None, stop: int | None = None, checkpoint: Path | None = None, progress: bool = True,
    **others: Never,
) -> list[Row]:  # fmt: skip
    """Train a model, and return the means of each epoch.

    One step is ``loss(model(*inputs), target)`` for a batch ``(*inputs, target)``, its backward pass, and a step of the
    optimizer.

    Parameters
    ----------
    model : Module
    loader : DataLoader, or any iterable of batches
        Each batch is a tuple; its last element is the target, and the others are arguments of the model.
    loss : callable
        The loss of the outputs and the target of a batch: a scalar, the mean over the batch, such as
        `minigrad.nn.functional.cross_entropy`.
    optimizer : Optimizer
    epochs : int
        The number of epochs in all, including those of a checkpoint.
    validation : DataLoader, or any iterable of batches, optional
        Evaluated after each epoch, in evaluation mode and without a tape.
    metrics : mapping of str to callable, optional
        Functions of outputs and target such as `accuracy`: a value for each sample, or one value for the batch.
    schedule : scheduler of `minigrad.optim.lr_scheduler`, optional
        It makes a step after each step of the optimizer: one epoch is ``len(loader)`` of its steps. A
        `ReduceLROnPlateau` makes a step after each epoch, with the validation loss (training loss, without
        `validation`).
    clip : float, optional
        The largest norm of all gradients together.
    stop : int, optional
        Training ends after this many epochs without a lower validation loss (training loss, without `validation`), and
        the model returns to the epoch with the lowest one, however it ends.
    checkpoint : str or os.PathLike, optional
        A file that is written after each epoch. If it exists, training continues where it ends.
    progress : bool
        Whether to show a progress bar in a terminal or notebook, if tqdm is installed.

    Returns
    -------
    list of dict
        For each epoch: "loss" and the metrics, and with "validation " before their names those of `validation`. They
        are means over samples, also if the last batch is smaller. `minigrad.viz.curves` draws them.

    Raises
    ------
    FloatingPointError
        If the mean loss of an epoch is not finite. No checkpoint of that epoch is written.
    TypeError
        For batches that are not tuples of at least two tensors, and a loss, optimizer or metrics of another kind.
    ValueError
        For numbers out of range, loaders without batches, and checkpoints of another run.

    Examples
    --------
    >>> mg.manual_seed(0)
    >>> x = mg.linspace(-1, 1, 50).reshape(50, 1)
    >>> loader = mg.data.DataLoader(mg.data.ArrayDataset(x, x * x), batch_size=16, shuffle=True, seed=0)
    >>> model = mg.nn.Sequential(mg.nn.Linear(1, 16), mg.nn.LayerNorm(16), mg.nn.Tanh(), mg.nn.Linear(16, 1))
    >>> optimizer = mg.optim.Adam(model.parameters(), 0.02)
    >>> history = mg.train.fit(model, loader, mg.nn.functional.mse_loss, optimizer, epochs=30)
    >>> len(history), history[-1]["loss"] < 0.02 < history[0]["loss"]
    (30, True)
    """
    for name in others:
        hint = ": stop= and checkpoint= do what most are for, and the rest is a loop of your own"
        raise TypeError(f"[fit] got an unexpected argument {name!r}{hint * (name == 'callbacks')}")
    epochs = integer("fit", "epochs", epochs, 0)
    stop = stop if stop is None else integer("fit", "stop", stop, 1)
    if not callable(loss):
        raise TypeError(f"[fit] expected a function as loss, such as nn.functional.cross_entropy, got {loss!r:.60}")
    if not isinstance(getattr(optimizer, "param_groups", None), list):
        raise TypeError(f"[fit] expected an optimizer, such as optim.Adam(model.parameters()), got {optimizer!r:.60}")
    if isinstance(validation, float):
        advice = "data.random_split(dataset, [0.8, 0.2]) makes two parts"
        raise TypeError(f"[fit] expected a loader as validation, got {validation}: {advice}")
    Means("fit", metrics)  # checks them
    plateau = isinstance(schedule, ReduceLROnPlateau)
    watched = "loss" if validation is None else "validation loss"
    parts = {"model": model, "optimizer": optimizer, "loader": loader, "schedule": schedule}
    parts = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}
    history: list[Row] = []
    best: dict[str, Any] | None = None
    if checkpoint is not None and os.path.exists(checkpoint):
        found = load_checkpoint(checkpoint, **parts)
        history, best = found["history"], found["best"]
        if stop is not None and history and best is None:
            place = os.fspath(checkpoint)
            raise ValueError(f"[fit] expected a checkpoint of a run with stop, got {place} of one without")

    with _progress_bar(progress, epochs, len(history)) as show:
        for _ in range(len(history), epochs):
            if stop is not None and len(history) - _best_epoch(history, watched) >= stop:
                break
            model.train()
            means = Means("fit", metrics)
            for inputs, target in batches("fit", loader):
                optimizer.zero_grad()
                outputs = model(*inputs)
                value = loss(outputs, target)
                value.backward()
                if clip is not None:
                    clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                if schedule is not None and not plateau:
                    schedule.step()
                means.add(outputs, target, value)
            row = means.result()
            if not math.isfinite(row["loss"]):
                raise FloatingPointError(
                    f"[fit] expected a finite loss, got {row['loss']} in epoch {len(history)}: lower the learning "
                    "rate, clip the gradients with clip=1.0, or look for the first such value with mg.detect_anomaly()"
                )
            if validation is not None:
                held_out = evaluate(model, validation, loss, metrics)
                row |= {f"validation {name}": mean for name, mean in held_out.items()}
            if plateau:
                schedule.step(row[watched])
            history.append(row)
            if stop is not None and _best_epoch(history, watched) == len(history):
                best = copy.deepcopy(model.state_dict())
            if checkpoint is not None:
                save_checkpoint(checkpoint, **parts, history=history, best=best)
            show(row)
    if best is not None:
        model.load_state_dict(best)
    return history


def _best_epoch(history: list[Row], watched: str) -> int:
    """Return the number of the epoch with the lowest loss, from 1; 0 before the first."""
    return min(range(len(history)), key=lambda k: history[k][watched], default=-1) + 1


@contextmanager
def _progress_bar(wanted: bool, epochs: int, done: int) -> Iterator[Callable[[Row], None]]:
    """Yield a function that shows the means of an epoch."""
    try:
        with warnings.catch_warnings():  # in a notebook without ipywidgets, tqdm warns that it draws no bar there
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda row: None
        return
    with tqdm(total=epochs, initial=done, unit="epoch", disable=None) as bar:

        def show(row: Row) -> None:
            bar.set_postfix({name: f"{value:.4g}" for name, value in row.items()}, refresh=False)
            bar.update()

        yield show
