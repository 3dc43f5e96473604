"""Training as curves: losses and accuracies over epochs, of one run or of several seeds."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#3b82f6", "#ea580c", "#16a34a", "#a855f7", "#db2777", "#0891b2", "#ca8a04", "#6b7280")
MIDDLE = "#7d7d7d"  # a gray as far from white as from black is readable on light and on dark pages
# The style of minigrad's figures: matplotlib's settings, for ``plt.style.context``. The background is transparent.
STYLE: dict[str, Any] = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.grid": True, "axes.axisbelow": True, "grid.color": MIDDLE, "grid.alpha": 0.25, "axes.edgecolor": MIDDLE,
    "text.color": MIDDLE, "xtick.color": MIDDLE, "ytick.color": MIDDLE, "axes.labelcolor": MIDDLE,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "legend.frameon": False,
}  # fmt: skip

WORD = r"(?<![a-z])({})(?![a-z])[\s_.:/-]*"
TRAINING = re.compile(WORD.format("train(ing)?"), re.IGNORECASE)
HELD_OUT = re.compile(WORD.format("val(id(ation)?)?|test|held[ -]out"), re.IGNORECASE)

Values = Sequence[float] | Sequence[Sequence[float]] | np.ndarray
Epochs = Sequence[Mapping[str, float]]


def curves(
    history: Mapping[str, Values] | Epochs | Sequence[Epochs], *, x: Sequence[float] | None = None, title: str = "",
    xlabel: str = "epoch", ylabel: str = "", log: bool = False, axes: "Axes | None" = None,
) -> "Figure":  # fmt: skip
    """Draw the history of a training run, or of the same run from several seeds.

    For several seeds, the line is the median and the band reaches from the lowest to the highest value. Names that
    differ only in "train" or "validation" ("val", "test", "held out"), or in its absence, share a color: the line of
    the training data is dashed, the other one solid.

    Parameters
    ----------
    history : mapping, or sequence of mappings
        One of: name -> values, one for each epoch; name -> values of shape (seeds, epochs); a list with a dict
        name -> value for each epoch; a list with such a list for each seed.
    x : sequence of float, optional
        The position of each value; 1, 2, 3, ... by default.
    title, xlabel, ylabel : str
    log : bool
        Whether the vertical axis is logarithmic.
    axes : matplotlib.axes.Axes, optional
        Where to draw, instead of on a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        A notebook shows it; ``figure.savefig(path)`` writes it. pyplot does not keep it: to see it in a window, draw on
        axes of your own.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If `history` is none of these, or a name in it is not a string.
    ValueError
        If there is nothing to draw, or if the numbers of epochs differ within a name or from `x`.

    Examples
    --------
    >>> figure = mg.viz.curves({"train loss": [2.3, 0.9, 0.4], "validation loss": [2.2, 1.1, 0.8]})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['train loss', 'validation loss']
    """
    found = _runs(history)
    try:
        import matplotlib.pyplot as plt
        from matplotlib.ticker import LogLocator, MaxNLocator
    except ImportError as error:
        raise ImportError(f"[curves] expected matplotlib to draw with, got {error}: pip install matplotlib") from error

    with plt.style.context(STYLE):
        own = axes is None
        if axes is None:
            figure, axes = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
            plt.close(figure)  # a notebook would show it twice
        colors = dict.fromkeys(_quantity(name) for name in found)
        colors = {quantity: COLORS[n % len(COLORS)] for n, quantity in enumerate(colors)}
        for name, runs in found.items():
            at = np.arange(1, runs.shape[1] + 1) if x is None else np.asarray(x, dtype=float)
            if at.shape != runs.shape[1:]:
                raise ValueError(f"[curves] expected x of length {runs.shape[1]} for {name!r}, got shape {at.shape}")
            color = colors[_quantity(name)]
            if len(runs) > 1:
                axes.fill_between(at, runs.min(0), runs.max(0), color=color, alpha=0.15, linewidth=0)
            dashed = _is_training(name, found)
            axes.plot(
                at, np.median(runs, axis=0), label=name, color=color, linewidth=1.4 if dashed else 1.8,
                linestyle="--" if dashed else "-", marker="o" if runs.shape[1] == 1 else None,
            )  # fmt: skip
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            low, high = axes.get_ylim()
            if high < 50 * low:  # too few powers of ten to read values from
                axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 4, 6, 8) if high < 5 * low else (2, 5)))
                axes.yaxis.set_minor_formatter("{x:g}")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.set_title(title)
        if own and x is None:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _place_legend(axes, own)
    return cast("Figure", axes.figure)


def _place_legend(axes: Any, own: bool) -> None:
    """Add the legend where it covers least; below axes of our own if it covers something everywhere."""
    legend = axes.legend(frameon=False)
    axes.figure.draw_without_rendering()
    box = legend.get_window_extent()
    drawn = [line.get_path().transformed(line.get_transform()) for line in axes.lines]
    drawn += [path.transformed(band.get_transform()) for band in axes.collections for path in band.get_paths()]
    if own and any(path.intersects_bbox(box, filled=False) or box.contains(*path.vertices[0]) for path in drawn):
        legend.remove()
        axes.figure.legend(loc="outside lower center", ncols=2, frameon=False)


def _runs(history: Any) -> dict[str, np.ndarray]:
    """Name -> values of shape (seeds, epochs)."""
    if not isinstance(history, Iterable):
        raise TypeError(f"[curves] expected a dict, or a dict for each epoch, got {type(history).__name__}")
    if not isinstance(history, Mapping):
        seeds = list(history)
        if seeds and all(isinstance(epoch, Mapping) for epoch in seeds):
            seeds = [seeds]
        listed = all(isinstance(run, Sequence) and all(isinstance(epoch, Mapping) for epoch in run) for run in seeds)
        if not seeds or not listed:
            raise ValueError(f"[curves] expected a dict, or a dict for each epoch, got {type(history).__name__}")
        names = dict.fromkeys(name for run in seeds for epoch in run for name in epoch)
        try:
            history = {name: [[epoch[name] for epoch in run] for run in seeds] for name in names}
        except KeyError as error:
            raise ValueError(f"[curves] expected {error} in every epoch, got one without it") from None
    found = {}
    for name, values in history.items():
        if not isinstance(name, str):
            raise TypeError(f"[curves] expected names that are strings, got {name!r} of type {type(name).__name__}")
        try:
            runs = np.asarray(values, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"[curves] expected as many numbers from each seed, got others for {name!r}") from None
        if runs.ndim not in (1, 2) or runs.size == 0:
            raise ValueError(f"[curves] expected values (epochs,) or (seeds, epochs) for {name!r}, got {runs.shape}")
        found[name] = np.atleast_2d(runs)
    if not found:
        raise ValueError("[curves] expected something to draw, got nothing")
    return found


def _quantity(name: str) -> str:
    """Return the name without the words that say which data."""
    return HELD_OUT.sub("", TRAINING.sub("", name)).strip().casefold()


def _is_training(name: str, names: Mapping[str, object]) -> bool:
    """Return whether a name says training, or says nothing while its partner says that its data were held out."""
    if TRAINING.search(name) or HELD_OUT.search(name):
        return TRAINING.search(name) is not None
    return any(HELD_OUT.search(other) and _quantity(other) == _quantity(name) for other in names)
