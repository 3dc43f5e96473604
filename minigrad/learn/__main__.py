"""The command line of the course: `python -m minigrad.learn`."""

import argparse
import os
import re
import sys

from minigrad.learn.checking import Report
from minigrad.learn.course import FOLDER, Course, fill, find

COLORS = {"ok": "32", "passed": "32", "wrong": "31", "started": "33"}


def paint(text: str) -> str:
    """Return the text with its first words in color, if it goes to a terminal that shows them."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    pattern = rf"^( +(?:\d+ +\w+ +)?)({'|'.join(COLORS)})(?= )"
    return re.sub(pattern, lambda m: f"{m[1]}\033[{COLORS[m[2]]}m{m[2]}\033[0m", text, flags=re.MULTILINE)


def make_parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser("python -m minigrad.learn", description="A course that checks your answers.")
    found.add_argument("--folder", help=f"of your files (default: {FOLDER} here, or this folder if it is one)")
    commands = found.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for name, text, stage in [
        ("list", "show the stages and your progress (the default)", None),
        ("start", "write the file of a stage into your folder; never overwrites", "?"),
        ("check", "check your file", "?"),
        ("hint", "show the next hint", "?"),
        ("solution", "show a solution", ""),
        ("reset", "begin a stage again; your file is kept under another name", ""),
    ]:
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        if stage is not None:
            default = " (default: the first that is not passed)" if stage else ""
            command.add_argument("stage", nargs=stage or None, help=f"name or number{default}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 if it succeeded, 1 if the check found a mistake, 2 if the command makes no sense."""
    given = make_parser().parse_args(arguments)
    course = Course(given.folder)
    said: str | Report
    try:
        if given.command in (None, "list"):
            said = course.overview()
        elif given.command == "solution":
            said = find(given.stage).solution.rstrip()
        else:
            said = getattr(course, given.command)(given.stage)
    except (ValueError, OSError) as error:
        first, *commands = str(error).removeprefix("[learn] ").splitlines()
        print("\n".join([fill(first), *commands]), file=sys.stderr)
        return 2
    try:
        print(paint(str(said)), flush=True)
    except BrokenPipeError:  # the reader, such as `head`, has left; what Python flushes at its end goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if isinstance(said, Report) and not said else 0


if __name__ == "__main__":
    sys.exit(main())
