"""`python -m minigrad` prints what this installation runs on."""

import signal

from minigrad.tools.config import show_config

if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):  # absent on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `python -m minigrad | head -1` ends in silence
    show_config()
