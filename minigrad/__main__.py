"""`python -m minigrad` prints what this installation runs on."""

from minigrad.tools.config import show_config

if __name__ == "__main__":
    show_config()
