"""Names of source files in what may be published."""

import os
from pathlib import Path


def public_place(where: str) -> str:
    """Return ``file:line`` with the file's public name."""
    path, _, line = where.rpartition(":")
    return f"{public_name(path)}:{line}"


def public_name(path: str) -> str:
    """Return the name of a file for other readers, which does not reveal the machine's other folders.

    A file in the current folder is named by its relative path, any other by the last two parts of its path, and a
    notebook cell as such.
    """
    if "ipykernel" in Path(path).parent.name:
        return "notebook cell"
    if path.startswith("<"):
        return path
    inside = os.path.relpath(path) if os.path.isabs(path) and Path(path).is_relative_to(Path.cwd()) else None
    return inside or "/".join(Path(path).parts[-2:])
