"""`python -m minigrad` prints what this installation runs on."""

import argparse
import signal

from minigrad.tools.config import show_config

COMMANDS = "python -m minigrad.learn is the course, and python -m minigrad.pytorch translates programs for PyTorch"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        "python -m minigrad", description="Print what this installation runs on.", epilog=f"{COMMANDS}."
    )
    _, others = parser.parse_known_args()
    if others:
        parser.error(f"expected no arguments, got {' '.join(others)}: {COMMANDS}")
    if hasattr(signal, "SIGPIPE"):  # absent on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `python -m minigrad | head -1` ends in silence
    show_config()
