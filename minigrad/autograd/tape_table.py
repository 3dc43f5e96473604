"""The tape of a tensor as a table, which `Tensor.tape` returns."""

import linecache
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minigrad.engine.tape import inspection
from minigrad.engine.tensor.names import name_leaves, names_of
from minigrad.engine.tensor.tensor import Extension
from minigrad.tools.places import public_place


class TapeTable(Sequence):
    """The rows that `Tensor.tape` returns: a sequence of dicts that prints as a table."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @property
    def saved_bytes(self) -> int:
        """The bytes that all rows together save for backward; a tensor saved by several rows counts each time."""
        return sum(row["saved_bytes"] for row in self._rows)

    def __repr__(self) -> str:
        from minigrad.tools.tables import as_text

        return as_text(*_cells(self._rows, {"name": _name, "source": _place}))

    def _repr_html_(self) -> str:
        from minigrad.tools.tables import as_html

        note = f"{self.saved_bytes:,} bytes are saved for backward"
        left_out = len(self._rows) - MOST_ROWS
        end = MOST_ROWS // 2
        shown = self._rows if left_out <= 0 else [*self._rows[:end], *self._rows[-end:]]
        head, rows = _cells(shown, {"name": _name, "module": _module, "source": _source})
        if left_out > 0:
            rows.insert(end, [f"… {left_out:,} more {'row' if left_out == 1 else 'rows'} …"])
        return as_html(head, rows, right=(0, 5), note=note)


MOST_ROWS = 400  # a notebook shows the first and the last rows of a longer tape


def _cells(
    entries: Sequence[dict[str, Any]], more: dict[str, Callable[[dict[str, Any]], str]]
) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows; a column of `more` is left out if all its cells are empty."""
    rows = [
        [
            str(row["index"]),
            row["op"] if row["op"] == "leaf" or not row["freed"] else f"{row['op']} (freed by backward)",
            ", ".join("-" if i is None else str(i) for i in row["inputs"]),
            str(row["shape"]),
            str(row["dtype"]),
            str(row["saved_bytes"]),
        ]
        for row in entries
    ]
    head = ["#", "op", "inputs", "shape", "dtype", "saved bytes"]
    for name, text in more.items():
        column = [text(row) for row in entries]
        if any(column):
            head.append(name)
            rows = [[*row, cell] for row, cell in zip(rows, column, strict=True)]
    return head, rows


def _name(row: dict[str, Any]) -> str:
    return row["name"] or ""


def _module(row: dict[str, Any]) -> str:
    """The path and the class of the module in which an operation was recorded."""
    if not row["scope"]:
        return ""
    path = ".".join(name for name, _ in row["scope"] if name)
    return f"{path} ({row['scope'][-1][1]})" if path else row["scope"][-1][1]


def _place(row: dict[str, Any]) -> str:
    """The file and line at which an operation was recorded."""
    return public_place(row["where"]) if row["where"] else ""


def _source(row: dict[str, Any]) -> str:
    """The file and line at which an operation was recorded, and the text of that line."""
    if row["where"] is None:
        return ""
    path, _, line = row["where"].rpartition(":")
    return f"{_place(row)}  {linecache.getline(path, int(line)).strip()}"


class TapeMethods:
    """The method that every tensor inherits."""

    def tape(self: Any, names: Any = None) -> TapeTable:
        """The recorded history of this tensor as a table, first operation first.

        Raises TypeError if `names` holds anything but tensors and modules.

        Parameters
        ----------
        names : Module or mapping of str to Tensor or Module, optional
            Names for leaves. A module's parameters are named by their paths; in a mapping, the module's key comes
            first. Other parameters have their paths in the outermost module that the operations ran in.

        Returns
        -------
        minigrad.autograd.TapeTable
            A sequence of rows with op, name, equation, derivative, inputs, shape, dtype, bytes saved for backward, the
            modules it was recorded in (name and class, outermost first) and, inside `minigrad.record_source`, the
            source line; prints as a table.

        Examples
        --------
        >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).tape({"x": x})
        #  op        inputs  shape  dtype    saved bytes  name
        0  leaf              (2,)   float32  0            x
        1  multiply  0, 0    (2,)   float32  8
        """
        found = inspection.entries(self)
        if names is not None:
            name_leaves(found, inspection.contents(self), names_of(names, "tape"))
        return TapeTable(found)


Extension.tape = TapeMethods.tape  # type: ignore[method-assign]
