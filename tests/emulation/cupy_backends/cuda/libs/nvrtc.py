"""The emulated compiler."""

import zlib
from pathlib import Path

HEADER = Path(__file__).parents[3] / "emulate.hpp"


def getVersion():
    """Return another version whenever the emulation changes, so that every module is compiled anew."""
    return zlib.crc32(HEADER.read_bytes()), 0
