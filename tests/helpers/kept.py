"""Results of compilers, kept in build/ between runs."""

import hashlib
import os
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "tests"


def made_once(make, *parts):
    """Return the bytes that `make()` makes of `parts`; it is called again only when one of these has changed.

    If it raises, nothing is kept.
    """
    path = FOLDER / hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    if path.exists():
        return path.read_bytes()
    result = make()
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")  # renamed when complete, as another process may read it
    part.write_bytes(result)
    part.rename(path)
    return result
