"""Where OpenBLAS is."""

import importlib.util
import os


def find() -> str:
    """Return the library of the package scipy-openblas32, a private copy that may be held to one thread, or ""."""
    spec = importlib.util.find_spec("scipy_openblas32")
    folder = os.path.join(os.path.dirname(spec.origin or ""), "lib") if spec is not None else ""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    libraries = sorted(n for n in names if n.startswith("libscipy_openblas") and not n.endswith(".a"))
    return os.path.join(folder, libraries[0]) if libraries else ""
