"""Measure what `import minigrad` and its peers cost beyond NumPy, in milliseconds and megabytes of memory."""

import argparse
import json
import os
import statistics
import subprocess
import sys

CHILD = """
import sys, time, json, resource
import numpy

def memory():
    try:
        pages = int(open("/proc/self/statm").read().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:  # without /proc, use the peak
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)

before, start = memory(), time.perf_counter()
try:
    __import__(sys.argv[1])
except ModuleNotFoundError as error:
    if error.name != sys.argv[1]:
        raise
    print(json.dumps(None))
else:
    print(json.dumps([(time.perf_counter() - start) * 1e3, memory() - before]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "modules", nargs="*", default=["minigrad", "torch", "jax"], help="what to import (default: minigrad torch jax)"
    )
    parser.add_argument("--processes", type=int, default=9, help="whose median is reported (default: %(default)s)")
    args = parser.parse_args()
    # bytecode is cached between processes, as in any installation
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    print("| import beyond numpy | ms | MB |\n|---|---:|---:|")
    for module in args.modules:
        command = [sys.executable, "-c", CHILD, module]
        # the first process does not count, as it may compile to bytecode and read from disk
        rows = [json.loads(subprocess.check_output(command, env=environment)) for _ in range(args.processes + 1)][1:]
        if None in rows:
            print(f"| {module} | not installed | |")
        else:
            time, memory = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"| {module} | {time:.0f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
