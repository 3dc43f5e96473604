"""Lines of source: of the user's code, and of the operations themselves if their sources are available."""

from __future__ import annotations

import linecache
import re
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any

from minigrad.engine.tape.node import Op
from minigrad.tools.places import public_name

AROUND = 2  # lines shown before and after
ENGINE = Path(__file__).parents[2] / "cext"  # a clone has it, an installed package does not


def user_line(where: str) -> dict[str, Any]:
    """Return what is shown of ``file:line``: the line with its neighbors, as far as Python can still find them."""
    path, _, line = where.rpartition(":")
    number = int(line)
    lines = linecache.getlines(path)
    first = max(1, number - AROUND)
    block = "".join(lines[first - 1 : number + AROUND]) if number <= len(lines) else ""
    shown = textwrap.dedent(block.expandtabs(4)).splitlines()
    return {"file": public_name(path), "line": number, "first": first, "lines": shown}


@lru_cache
def excerpt(op: Op) -> dict[str, Any] | None:
    """Return the record of an operation and the function that it names; None if the sources are not available.

    What lies between the two is included if it is short, and otherwise replaced by a line with the number None.
    """
    first = op.forward.partition("\n")[0]
    for path in sorted(ENGINE.rglob("*.pyx")):
        text = path.read_text(encoding="utf-8")
        records = rf'^cdef Op (?:(?!\n\n).)*?operation\(\s*(?:"{op.name}"|name), (\w+),((?:(?!\n\S|\n\n).)*)'
        for record in re.finditer(records, text, re.M | re.S):
            if f'"{first}"' in record[2] or f'"{first}\\n' in record[2]:
                pieces = [record.span()]
                function = re.search(rf"^cdef int {record[1]}\(.*?(?=\n+(?!\))\S|\Z)", text, re.M | re.S)
                if function and record[1] != "no_gradient":
                    near = 0 <= function.start() - record.end() < 500
                    pieces = [(record.start(), function.end())] if near else [record.span(), function.span()]
                numbers: list[int | None] = []
                lines: list[str] = []
                for start, stop in pieces:
                    piece, line = text[start:stop].rstrip().splitlines(), text.count("\n", 0, start) + 1
                    numbers += [*([None] if numbers else []), *range(line, line + len(piece))]
                    lines += [*([""] if lines else []), *piece]
                return {"file": f"cext/{path.relative_to(ENGINE)}", "numbers": numbers, "lines": lines}
    return None
