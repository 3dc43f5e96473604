"""The tape as a page: step through the forward and the backward pass and see what every entry holds."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from minigrad.engine.memory.listener import Listener, listen, stop_listening
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.recurrent import Cell, Lengths, compositions
from minigrad.engine.tape.backward import differentiate
from minigrad.engine.tape.inspection import bytes_of, contents, operations
from minigrad.engine.tape.node import Op
from minigrad.engine.tensor.names import name_leaves, names_of
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import Module
from minigrad.viz.cells import Equation, equation_of_cell
from minigrad.viz.recording import newest, record
from minigrad.viz.sources import excerpt, user_line
from minigrad.viz.tapes import entries_of
from minigrad.viz.unrolled import Unrolled
from minigrad.viz.values import describe, wait_for

HEIGHT = 760  # pixels of the frame in a notebook
LONG = 32  # steps; longer recurrent layers show their gates and states, and not every operation
LARGE = 2**24  # bytes; a recurrent layer with a larger projected input is not shown step by step


class Page:
    """A self-contained page; notebooks display it, and it can be passed where a path is expected.

    Attributes
    ----------
    html : str
        The whole page.
    path : pathlib.Path or None
        Where it was written.

    Examples
    --------
    >>> x = mg.tensor(3.0, requires_grad=True)
    >>> page = mg.viz.explore(x * x)
    >>> page.path is None, page.html.startswith("<!doctype html>")
    (True, True)
    """

    def __init__(self, text: str, path: Path | None, entries: int) -> None:
        self.html, self.path, self._entries = text, path, entries

    def __fspath__(self) -> str:
        if self.path is None:
            raise TypeError("[Page] expected a page that was written to a file: explore(loss, path)")
        return str(self.path)

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else str(self.path)
        return f"Page({self._entries} entries, {len(self.html) / 1e6:.2f} MB, {place})"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="The tape, entry by entry" loading="lazy" '
            f'style="width:100%;height:{HEIGHT}px;border:1px solid #8884;border-radius:8px"></iframe>'
        )


class Arrivals(Listener):
    """Describes the gradients that a backward pass brings to each operation, and times the operations.

    For the operations in `keep`, the gradients themselves are kept too.
    """

    def __init__(self, keep: Collection[int]) -> None:
        super().__init__()
        self.grads: dict[int, list[dict[str, Any] | None]] = {}
        self.kept: dict[int, tuple[Tensor | None, ...]] = dict.fromkeys(keep, ())
        self.seconds: dict[int, float] = {}
        self._under_way: list[tuple[int, float, tuple[Tensor | None, ...]]] = []

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        """The gradients of an operation's outputs are complete."""
        self.grads[sequence] = [None if g is None else describe(g) for g in grads]
        if sequence in self.kept:
            self.kept[sequence] = grads
        super().entered(sequence, op, grads)
        self._under_way.append((sequence, time.perf_counter(), grads))

    def left(self, sequence: int) -> None:
        """The operation's inputs have their gradients; operations of a failed pass within this one were never left."""
        while self._under_way:
            number, since, grads = self._under_way.pop()
            if number == sequence:
                wait_for(grads)
                self.seconds[sequence] = time.perf_counter() - since
                break
        super().left(sequence)


def explore(
    loss: Tensor, path: str | os.PathLike[str] | None = None, *, grad: Tensor | None = None,
    names: Module | Mapping[str, Tensor | Module] | None = None, recording: record | None = None,
    title: str = "The tape",
) -> Page:  # fmt: skip
    """Write a page that steps through the forward and the backward pass of `loss`.

    For every entry the page shows the input and output values, the gradients, the equation and its derivative, the line
    of the user's code, the time, and the bytes that the tape holds. It is one file that needs neither network nor
    server.

    Values of results are shown if the forward pass ran under `record`; otherwise the tape keeps only what its
    backward reads, and the page says so. The gradients come from one backward pass that is run here with its tape
    retained: no ``grad`` is changed, and ``loss.backward()`` may follow. Hooks on tensors run in it as in any
    other.

    A recurrent layer, which is one operation for all time steps, can be opened on the page: its composition is run
    here, forward and backward, and shows every gate and state with its gradient, step by step. Notebooks display the
    page, and it can be passed where a path is expected.

    Parameters
    ----------
    loss : Tensor
        What is differentiated.
    path : str or path, optional
        The file to write; without one the page is only returned.
    grad : Tensor, optional
        The gradient of `loss`, of its shape; may be left out for one element (then 1).
    names : Module or mapping of str to Tensor or Module, optional
        Names for leaves. A module's parameters are named by their paths; in a mapping, the module's key comes first.
        Other parameters have their paths in the outermost module that the operations ran in.
    recording : record, optional
        The block that the forward pass ran in; by default the most recent one.
    title : str
        The heading of the page.

    Raises
    ------
    GradientError
        If `loss` does not depend on anything that requires grad, if it has several elements and there is no `grad`, if
        `grad` does not fit it, or if the tape is no longer whole: a backward pass has freed it, or a leaf became
        another tensor (`Tensor.set_`).
    TypeError
        If `loss` or `grad` is not a tensor, `recording` is not a recording, or `names` holds anything else.

    Examples
    --------
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with mg.viz.record():
    ...     loss = (x * x).sum()
    >>> page = mg.viz.explore(loss, "tape.html", names={"x": x})
    >>> page
    Page(3 entries, ... MB, tape.html)
    """
    if not isinstance(loss, Tensor):
        raise TypeError(f"[explore] expected a tensor, got {kind_of(loss)}")
    if recording is not None and not isinstance(recording, record):
        raise TypeError(f"[explore] expected a recording, the object of viz.record(), got {type(recording).__name__}")
    known = names_of({} if names is None else names, "explore")
    content = tape_of(loss, grad, known, newest() if recording is None else recording)
    text = page_of(content, title)
    written = None if path is None else Path(path)
    if written is not None:
        written.write_text(text, encoding="utf-8")
    return Page(text, written, sum(entry["parent"] is None for entry in content["entries"]))


def gradients(loss: Tensor, grad: Tensor | None, leaves: list[Tensor], keep: Collection[int]) -> Arrivals:
    """One backward pass to the leaves, observed; the tape is retained."""
    seen = Arrivals(keep)
    listen(seen)
    try:
        differentiate([loss], [grad], leaves, True, False, "explore")
    finally:
        stop_listening(seen)
    return seen


def tape_of(loss: Tensor, grad: Tensor | None, known: Mapping[int, str], recording: record | None) -> dict[str, Any]:
    """Collect all that the page shows, ready for JSON, for `explore.js` to read. `known` maps ids of leaves to names.

    ``entries`` are in the order of the tape. Their ``outs``, ``grads`` and ``saved`` are numbers into ``tensors``,
    their ``source`` into ``sources``, their ``equation`` into ``equations``. ``inputs`` are indices of entries,
    ``routes`` say which output of that entry it was, ``read`` which tensor it is if saved. ``held`` are the
    bytes that the entry is the first to save: tensors at one address count once, leaves not at all.

    The entries of recurrent layers' time steps come after them, see `entries_inside`.
    """
    rows = entries_of(loss, "explore")
    held, ops = contents(loss), operations(loss)
    name_leaves(rows, held, known)
    leaves = {sequence: leaf for sequence, (leaf, _, _) in held.items() if leaf is not None}
    layers = compositions(loss)
    seen = gradients(loss, grad, list(leaves.values()), layers)
    tensors, sources, equations = Table(dict, json.dumps), Table(user_line), Table(equation_row)
    counted = {leaf.data_ptr() for leaf in leaves.values()}
    numbers: dict[int, int] = {}  # id of a saved tensor -> its number; `held` keeps them alive
    shown: list[dict[str, Any]] = []
    for row in rows:
        sequence = row["sequence"]
        leaf, saved, options = held[sequence]
        values = None if recording is None else recording.values.get(sequence)
        if leaf is not None:
            noted = None if recording is None else recording.leaves.get(sequence)
            values = [noted or describe(leaf)]
        new = {x.data_ptr(): bytes_of(x) for x in saved if x.data_ptr() not in counted}
        counted |= new.keys()
        for x in saved:
            if id(x) not in numbers:
                numbers[id(x)] = tensors.add(describe(x))
        kept = [numbers[id(x)] for x in saved]
        read = dict(zip(row["saved_inputs"], kept, strict=False))
        cell = next((option for option in options if isinstance(option, Cell)), None)
        equation: Op | Equation = ops[sequence]
        if cell is not None and not row["function"]:
            ends = any(isinstance(option, Lengths) for option in options)
            equation = equation_of_cell(ops[sequence], cell, {0, *row["saved_inputs"]}, ends)
        shown.append({
            "op": row["op"], "name": row["name"], "leaf": sequence < 0, "parent": None,
            "scope": [kind if name is None else f"{name}: {kind}" for name, kind in row["scope"]],
            "inputs": row["inputs"], "routes": row["outputs"], "shape": list(row["shape"]), "dtype": str(row["dtype"]),
            "outs": tensors.add_all(values), "grads": tensors.add_all(seen.grads.get(sequence)),
            "saved": kept, "read": [read.get(i) for i in range(len(row["inputs"]))],
            "saved_bytes": row["saved_bytes"], "held": sum(new.values()),
            "source": None if row["where"] is None else sources.add(row["where"]), "equation": equations.add(equation),
            "forward": None if recording is None else recording.seconds.get(sequence),
            "backward": seen.seconds.get(sequence),
        })  # fmt: skip
    for row in rows:
        if not seen.kept.get(row["sequence"]):
            continue
        composition, inputs = layers[row["sequence"]]
        projected = inputs[0]
        if projected is not None and bytes_of(projected) > LARGE:
            shown[row["index"]]["note"] = f"its time steps are not shown: its input takes more than {LARGE:,} bytes"
        else:
            layer = Unrolled(ops[row["sequence"]].inputs, composition, inputs, seen.kept[row["sequence"]])
            shown += entries_inside(layer, shown[row["index"]], row["index"], len(shown), tensors, equations)
    return {"entries": shown, "tensors": tensors.rows, "sources": sources.rows, "equations": equations.rows}


def entries_inside(
    layer: Unrolled, outer: dict[str, Any], parent: int, start: int, tensors: Table, equations: Table
) -> list[dict[str, Any]]:
    """Return the entries of a recurrent layer's time steps, from number `start`; `outer` is its own, number `parent`.

    They are its inputs, its time steps, each followed by its operations, and the operations before and after all
    steps. A time step has ``given`` and ``made``, what it read and computed: rows of name, value and gradient. Of more
    than `LONG` steps, there are no operations.
    """
    inner = [row for row in layer.rows if row["sequence"] > 0 and len(layer.steps) <= LONG]
    place: dict[int, int] = {}  # index of a row -> number of its entry
    found: list[dict[str, Any]] = []

    def add(**entry: Any) -> int:
        blank = {"name": None, "leaf": False, "parent": parent, "scope": outer["scope"] + [outer["op"]], "inputs": [],
                 "routes": [], "dtype": outer["dtype"], "outs": None, "grads": None, "saved": [], "read": [],
                 "saved_bytes": 0, "held": 0, "source": outer["source"], "forward": None, "backward": None}  # fmt: skip
        found.append(blank | entry)
        return start + len(found) - 1

    def add_row(row: dict[str, Any], **more: Any) -> None:
        place[row["index"]] = add(
            op=row["op"], leaf=row["sequence"] < 0, inputs=[place.get(i) for i in row["inputs"]],
            routes=row["outputs"], read=[None] * len(row["inputs"]), shape=list(row["shape"]),
            outs=tensors.add_all(layer.values(row["sequence"])), grads=tensors.add_all(layer.grads(row["sequence"])),
            equation=equations.add(layer.ops[row["sequence"]]), **more,
        )  # fmt: skip

    for row in layer.rows:
        if row["sequence"] < 0:
            add_row(row, name=layer.names[row["sequence"]])
    before = layer.first
    for row in inner:
        if row["sequence"] <= before:
            add_row(row)
    for t, step in enumerate(layer.steps, 1):
        name = f"t = {t}"
        given, made = (
            [(symbol, tensors.add(value), None if grad is None else tensors.add(grad)) for symbol, value, grad in part]
            for part in layer.describe_step(step)
        )
        number = add(op=name, shape=list(step.made["h_t"].shape), equation=outer["equation"], given=given, made=made)
        symbols = {layer.number(x): symbol for symbol, x in step.made.items()}
        for row in inner:
            if before < row["sequence"] <= step.last:
                symbol = [symbols[row["sequence"]]] if row["sequence"] in symbols else []
                add_row(row, parent=number, scope=[*outer["scope"], outer["op"], name, *symbol])
        before = step.last
    for row in inner:
        if row["sequence"] > before:
            add_row(row)
    return found


class Table:
    """Rows that entries share: things with equal keys have one row, which also shows that they are equal."""

    def __init__(self, make: Callable[[Any], Any], key: Callable[[Any], Any] = lambda thing: thing) -> None:
        self.rows: list[Any] = []
        self._make, self._key, self._numbers = make, key, dict[Any, int]()

    def add(self, thing: Any) -> int:
        """Return the number of the row of a thing."""
        key = self._key(thing)
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append(self._make(thing))
        return self._numbers[key]

    def add_all(self, things: Iterable[Any] | None) -> list[int | None] | None:
        """Return the numbers of things, None for those that are None, and None if there are no things."""
        return None if things is None else [None if thing is None else self.add(thing) for thing in things]


def equation_row(equation: Op | Equation) -> dict[str, Any]:
    return {
        "inputs": equation.inputs,
        "outputs": equation.outputs,
        "forward": equation.forward,
        "backward": equation.backward,
        "source": equation.source,
        "excerpt": excerpt(equation if isinstance(equation, Op) else equation.op),
    }


def page_of(content: dict[str, Any], title: str) -> str:
    """Return the page: template, style, script and content in one text."""
    folder = resources.files("minigrad.viz")
    sources = {"style": "explore.css", "values": "values.js", "script": "explore.js", "page": "explore.html"}
    parts = {part: folder.joinpath(name).read_text(encoding="utf-8") for part, name in sources.items()}
    parts["title"] = html.escape(title)
    # "<" is escaped so that no user text can end the script element that contains it
    parts["data"] = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    pieces = parts["page"].split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)
