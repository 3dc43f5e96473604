"""Measure the cost of a training step that alternates with the user's own NumPy products.

Two thread pools that spin against each other can slow both down many times. For every framework this measures, in a
separate process, a training step alone, a two-threaded `numpy` matmul alone, and the two alternating; the time of the
last divided by the sum of the first two should be 1.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

from measure import hold_to, step_of, times_of

BLOCKS = 10  # the three are measured in turns, so that other load on the machine affects all of them
REST = 0.1  # seconds between blocks, as OpenBLAS's idle workers spin for tens of milliseconds: only `both` is affected


def measure(framework, workload, size, threads, seconds):
    """Return median milliseconds of the step alone, the product alone, and one after the other."""
    hold_to(threads)
    import numpy as np

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    out = np.empty((size, size), np.float32)
    step = step_of(framework, workload, threads)

    def product():
        np.matmul(a, b, out=out)

    def both():
        step()
        product()

    times = {step: [], product: [], both: []}
    for _ in range(BLOCKS):
        for run, found in times.items():
            time.sleep(REST)
            found += times_of(run, seconds / BLOCKS)
    return [statistics.median(found) for found in times.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--frameworks",
        nargs="+",
        default=("minigrad", "torch"),
        metavar="NAME",
        help="any of minigrad, torch, torchc, jax (default: minigrad torch)",
    )
    parser.add_argument("--workload", default="mlp256_b128", help="the training step (default: %(default)s)")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the product (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of both (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="processes per framework (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement (default: %(default)s)")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)  # for the child processes
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.workload, args.size, args.threads, args.seconds)))
        return
    found = {framework: [] for framework in args.frameworks}
    for _ in range(args.rounds):
        for framework, rows in found.items():
            done = subprocess.run([sys.executable, *sys.argv, "--one", framework], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"{framework} failed")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    print(f"| ms, {args.threads} threads | {args.workload} | numpy {args.size}³ | in turns | ÷ sum |")
    print("|---|---:|---:|---:|---:|")
    for framework, rows in found.items():
        step, product, both = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {framework} | {step:.3g} | {product:.3g} | {both:.3g} | **{both / (step + product):.2g}** |")


if __name__ == "__main__":
    main()
