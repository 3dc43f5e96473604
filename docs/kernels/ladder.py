"""Shared helpers of this section's pages: checking derivatives, measuring time, and plotting it."""

import ctypes
import importlib.util
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib_inline.backend_inline import set_matplotlib_formats
from threadpoolctl import threadpool_limits

import minigrad as mg
from minigrad import viz

ROOT = Path(__file__).resolve().parents[2]
INK, BAR, OURS = viz.STYLE["text.color"], "#8fa3bf", "#d1782f"  # readable on white and on black

# NumPy's BLAS has its own threads, which on a busy machine wait for each other longer than a small product takes.
threadpool_limits(1, "blas")
set_matplotlib_formats("svg")
plt.rcParams.update(viz.STYLE | {"axes.grid": False})


# ── derivatives ──


def central_differences(f: Callable, x: np.ndarray, g: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The gradient of sum(g f(x)), one element of x at a time: (f(x + step) - f(x - step)) / (2 step)."""
    dx = np.empty_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        dx[i] = np.sum(g * (f(up) - f(down))) / (2 * step)
    return dx


def furthest(a: object, b: object) -> float:
    """The largest absolute difference of two arrays."""
    return float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))))


# ── time ──


def measure(rungs: dict[str, Callable], rounds: int = 4, seconds: float = 0.06) -> dict[str, float]:
    """The minimum seconds per call of each function.

    The functions take turns, so that other load on the machine affects all of them. Each turn makes several calls, so
    that the memory allocator can settle.
    """
    least = dict.fromkeys(rungs, float("inf"))
    for _ in range(rounds):
        for name, f in rungs.items():
            begin = stop = time.perf_counter()
            while stop - begin < seconds:
                start = time.perf_counter()
                f()
                stop = time.perf_counter()
                least[name] = min(least[name], stop - start)
    return least


def copy_rate(size: int) -> float:
    """Bytes per second, read and written, of minigrad's copy of `size` bytes, with all threads."""
    x = mg.ones(size // 4)
    return 2 * size / measure({"copy": x.copy}, rounds=8)["copy"]


def product_rate(n: int = 512) -> float:
    """Floating-point operations per second of minigrad's product of float32 matrices [n, n], with all threads."""
    a = mg.ones((n, n))
    return 2 * n**3 / measure({"product": lambda: a @ a}, rounds=8)["product"]


def chart(parts: dict[str, dict[str, float]], floors: dict[str, float], ours: str = "fused") -> None:
    """Plot the seconds of every rung as bars that begin at the floor, one panel per part, on a logarithmic axis."""
    names = list(next(iter(parts.values())))
    figure, panels = plt.subplots(1, len(parts), figsize=(8.4, 0.6 + 0.42 * len(names)), sharey=True, squeeze=False)
    for axes, (title, seconds) in zip(panels[0], parts.items(), strict=True):
        ratios = [seconds[name] / floors[title] for name in names]
        places = np.arange(len(names))
        axes.barh(places, [r - 1 for r in ratios], left=1, height=0.6,
                  color=[OURS if name == ours else BAR for name in names])  # fmt: skip
        for place, name, ratio in zip(places, names, ratios, strict=True):
            text = f"{seconds[name] * 1e3:.3g} ms" if seconds[name] >= 1e-4 else f"{seconds[name] * 1e6:.3g} µs"
            axes.text(max(ratio, 1) * 1.06, place, text, va="center", fontsize=9)
        axes.set(xscale="log", title=title, xlabel="times the floor", yticks=places, yticklabels=names)
        axes.set_xlim(min([*ratios, 1]) * 0.9, max(ratios) * 4)
        ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500) if t <= max(ratios) * 1.5]
        axes.set_xticks(ticks, [f"{t}" for t in ticks])
        axes.minorticks_off()
        axes.axvline(1, color=INK, linewidth=1)
        axes.invert_yaxis() if axes is panels[0][0] else None
    figure.tight_layout()
    plt.show()


# ── the GPU, or its emulation ──


def cuda() -> str:
    """Make ``device="cuda"`` work: with a GPU if there is one, otherwise with the emulation of the test suite."""
    try:
        if ctypes.CDLL("libcuda.so.1").cuInit(0) == 0 and importlib.util.find_spec("cupy"):
            return "a GPU"
    except OSError:  # no driver
        pass
    sys.path.insert(0, str(ROOT / "tests" / "emulation"))
    return "the emulation"


# ── excerpts ──


def check_excerpts(page: str) -> int:
    """The number of excerpts in a page, after checking that each starts at a unique line of its file and ends later."""
    found = re.findall(r"^```\{literalinclude\} (\S+)\n(.*?)^```", Path(page).read_text(encoding="utf-8"), re.M | re.S)
    for path, options in found:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        marks = {key: " ".join(shlex.split(value)) if value.startswith('"') else value
                 for key, value in re.findall(r"^:([\w-]+): *(.*)$", options, re.M)}  # fmt: skip
        first = [i for i, line in enumerate(lines) if marks["start-at"] in line]
        assert len(first) == 1, f"{path}: {marks['start-at']!r} is in {len(first)} lines"
        assert any(marks["end-before"] in line for line in lines[first[0] + 1 :]), f"{path}: {marks['end-before']!r}"
    return len(found)


def text(path: str) -> str:
    """The text of a file of the repository, for checking what a page says about it."""
    return (ROOT / path).read_text(encoding="utf-8")
