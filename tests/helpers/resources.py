"""The resources that the CUDA kernels take, and the table of it in docs/kernels/resources.md.

Run as a program, this writes the table of the NVRTC that is found, whose numbers the tests hold.
"""

import re
from pathlib import Path
from typing import NamedTuple

from kernels import EVERY
from nvrtc import messages, version

from minigrad.cuda import launch

PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "resources.md"
OPTIMIZED = (80, 90)  # the architectures of the table
FIRST = (12, 9)  # the NVRTC of the first table; the second has what a later one takes more
LATER = "\n## NVRTC 13.5\n"
FILES = sorted({file for file, _, dtype in EVERY if dtype == "float32"})


class Resources(NamedTuple):
    """The resources of a kernel: registers of a thread, bytes of shared memory of a block, and bytes of local memory."""

    registers: int
    shared: int
    stack: int
    stored: int
    loaded: int


def build(file, architecture):
    """Return the text and the options of a module in float32, whose compilation reports what its kernels take."""
    options = *launch.options("float32"), f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v"
    return launch.functions("float32") + launch.source(file)[0], options


def resources(log):
    """Return what the compiler has reported of each kernel."""
    found = {}
    for part in log.split("Compiling entry function '")[1:]:
        local = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        shared = re.search(r"(\d+) bytes smem", part)
        numbers = re.search(r"Used (\d+) registers", part)[1], shared[1] if shared else 0, *local.groups()
        found[part.partition("'")[0]] = Resources(*map(int, numbers))
    return found


def read_table(nvrtc=FIRST):
    """Return {(kernel, architecture): Resources} of the page for a version of NVRTC."""
    table = {}
    first, _, later = PAGE.read_text(encoding="utf-8").partition(LATER)
    for line in (first + later if nvrtc > FIRST else first).splitlines():
        if line.startswith("| `"):
            name, _, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
            for k, architecture in enumerate(OPTIMIZED):
                registers, shared, stack, spilled = cells[4 * k : 4 * k + 4]
                stored, _, loaded = spilled.partition(" / ")
                table[name, architecture] = Resources(*map(int, (registers, shared, stack, stored, loaded or stored)))
    return table


def write_table():
    """Compile all modules, and write the rows of the page: in the second table, of kernels that take more than before."""
    rows, before = [], read_table()
    for file in FILES:
        found = [resources(messages(*build(file, architecture))) for architecture in OPTIMIZED]
        for name in sorted(found[0]):
            if version() > FIRST and not any(
                used > most
                for each, architecture in zip(found, OPTIMIZED, strict=True)
                for used, most in zip(each[name], before[name, architecture], strict=True)
            ):
                continue
            cells = []
            for one in (each[name] for each in found):
                spilled = f"{one.stored} / {one.loaded}" if one.stored or one.loaded else "0"
                cells += [one.registers, one.shared, one.stack, spilled]
            rows.append(f"| `{name}` | {file} | {' | '.join(map(str, cells))} |")
    first, heading, later = PAGE.read_text(encoding="utf-8").partition(LATER)
    text = heading + later if version() > FIRST else first
    written = text.partition("\n| `")[0].rstrip("\n") + "\n" + "\n".join(rows) + "\n"
    PAGE.write_text(first + written if version() > FIRST else written + heading + later, encoding="utf-8")


if __name__ == "__main__":
    write_table()
