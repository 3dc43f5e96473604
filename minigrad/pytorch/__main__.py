"""`python -m minigrad.pytorch program.py` shows what a program for PyTorch means otherwise here, and translates it."""

import argparse
import io
import os
import sys
import tokenize
from pathlib import Path

from minigrad.pytorch.translation import Translator


def make_parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        "python -m minigrad.pytorch",
        description="Show each line of a program for PyTorch that means something else with minigrad, or does not "
        "work, and what to write. Nothing is executed.",
        epilog="The exit status is 1 if something has to be changed, and 2 if a file cannot be read or written.",
    )
    found.add_argument("program", nargs="+", help="a file in Python")
    found.add_argument(
        "--rewrite", action="store_true", help="write the translated program, and show what is left to do"
    )
    found.add_argument(
        "-o", "--output", metavar="PATH", help="a file, or a folder for several (default: NAME_minigrad.py)"
    )
    return found


def place_for(program: Path, output: str | None, several: bool) -> Path:
    """Where the translated program is written; a file there is kept unless its name was given."""
    if output is None:
        place = program.with_name(f"{program.stem}_minigrad.py")
        if place.exists():
            raise FileExistsError(f"{place} exists: name the file to write with -o")
        return place
    if several or output.endswith(os.sep) or os.path.isdir(output):
        os.makedirs(output, exist_ok=True)
        return Path(output, program.name)
    return Path(output)


def main(arguments: list[str] | None = None) -> int:
    """Show or translate programs; 1 if something has to be changed by hand, 2 if a file cannot be read or written."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    if given.output and not given.rewrite:
        parser.error("-o is for --rewrite")
    status = 0
    for program in map(Path, given.program):
        try:
            source = program.read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
            found = Translator(source.decode(encoding).encode())
            left = [f for f in found.findings if not (given.rewrite and f.edited)]
            for finding in left:
                print(f"{program}:{finding.line}:{finding.column}: {finding}")
            if given.rewrite:
                place = place_for(program, given.output, len(given.program) > 1)
                place.write_bytes(found.rewritten().encode(encoding))
                print(f"{place}: {len(found.findings) - len(left)} places rewritten, {len(left)} left to look at")
            status = max(status, int(any(f.certain for f in left)))
        except (OSError, SyntaxError, ValueError) as error:
            print(f"{program}: {error}", file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
