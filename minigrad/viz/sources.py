"""Lines of source: of the user's code, and of the operations themselves where their sources are at hand."""

from __future__ import annotations

import linecache
import os
import re
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any

import minigrad

AROUND = 2  # lines shown before and behind
OPERATIONS = Path(minigrad.__file__).parent.parent / "cext" / "ops"  # in a clone; an installed package has none


def user_line(where: str) -> dict[str, Any]:
    """What is shown of ``file:line``: the line with its neighbours, as far as Python can still find them.

    The file is named relative to the current folder if it lies there, else by its last two parts, a notebook's cell as
    such: a page may be published, and says nothing of the machine's other folders.
    """
    path, _, line = where.rpartition(":")
    number = int(line)
    lines = linecache.getlines(path)
    first = max(1, number - AROUND)
    block = "".join(lines[first - 1 : number + AROUND]) if number <= len(lines) else ""
    shown = textwrap.dedent(block.expandtabs(4)).splitlines()
    return {"file": public_name(path), "line": number, "first": first, "lines": shown}


def public_place(where: str) -> str:
    """``file:line`` with the file's public name."""
    path, _, line = where.rpartition(":")
    return f"{public_name(path)}:{line}"


def public_name(path: str) -> str:
    """What a file is called where others may read it, see `user_line`."""
    if "ipykernel" in Path(path).parent.name:
        return "notebook cell"
    if path.startswith("<"):
        return path
    inside = os.path.relpath(path) if os.path.isabs(path) and Path(path).is_relative_to(Path.cwd()) else None
    return inside or "/".join(Path(path).parts[-2:])


@lru_cache
def excerpt(code: str) -> dict[str, Any] | None:
    """The function ``module.function`` of cext/ops and the comment above it; None where the sources are not at hand."""
    module, _, function = code.partition(".")
    path = OPERATIONS / f"{module}.pyx"
    if not path.is_file():
        return None
    lines = path.read_text().splitlines()
    starts = [k for k, text in enumerate(lines) if re.match(rf"(cdef|cpdef|def)\b.*\b{function}\(", text)]
    if not starts:
        return None
    start = stop = starts[0]
    while start and (lines[start - 1].startswith("#") or not lines[start - 1]):
        start -= 1
    while start < starts[0] and not lines[start]:
        start += 1
    stop += 1
    while stop < len(lines) and (not lines[stop] or lines[stop][0] in " )"):
        stop += 1
    while not lines[stop - 1]:
        stop -= 1
    return {"file": f"cext/ops/{module}.pyx", "first": start + 1, "lines": lines[start:stop]}
