"""Measure every workload with the default threads and with one, in turns, in one process; print a Markdown table.

A second thread must not cost more than it gains: the default should take at most 1.03 of the time of one thread.
"""

import argparse
import statistics
import sys

from compare import WORKLOADS
from measure import step_of, times_of

import minigrad as mg

SMALL = ("tiny_b1", "tiny_b32", "mlp1000_b8", "lnlstm_b1", "mingru_b1", "gpt_b1", "attn_b1")


def measure(workload, blocks, seconds):
    """Return the median milliseconds of a step with the default threads, and with one."""
    default = mg.get_num_threads()
    step = step_of("minigrad", workload, default)
    times = {default: [], 1: []}
    for _ in range(blocks):
        for threads, found in times.items():
            mg.set_num_threads(threads)
            found.append(statistics.median(times_of(step, seconds, 1)))
    mg.set_num_threads(default)
    return [statistics.median(found) for found in times.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS + SMALL, help="default: compare.py's, and small ones")
    parser.add_argument("--blocks", type=int, default=3, help="of which a time is the median (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.3, help="per block (default: %(default)s)")
    args = parser.parse_args()
    if mg.get_num_threads() == 1:
        sys.exit("there is one thread by default: nothing to compare")
    print("| ms per step | default threads | one thread | ÷ |\n|---|---:|---:|---:|")
    for workload in args.workloads:
        ours, one = measure(workload, args.blocks, args.seconds)
        print(f"| {workload} | {ours:.3g} | {one:.3g} | {ours / one:.2f} |", flush=True)


if __name__ == "__main__":
    main()
