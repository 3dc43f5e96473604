"""Measure many small networks at once, each in a process of its own, as a search over hyper-parameters trains them.

A network 17-64-64-6 with LayerNorm takes 256 samples forward and backward. Every row starts some worker processes
together; a time is microseconds per step, the mean over the workers, the median over the rounds. Threads that find no
free core cost time if they wait for one: with the default threads, a step should take as long as with one thread each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

FRAMEWORKS = ("minigrad", "torch")


def step_of(framework):
    """Return the function that runs a step."""
    import numpy as np

    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((256, 17), np.float32), rng.standard_normal((256, 6), np.float32)
    if framework == "torch":
        import torch as module
    else:
        import minigrad as module
    nn = module.nn
    hidden = [layer for width in (17, 64) for layer in (nn.Linear(width, 64), nn.LayerNorm(64), nn.Tanh())]
    network = nn.Sequential(*hidden, nn.Linear(64, 6))
    x, g = module.tensor(x), module.tensor(g)

    def step():
        network.zero_grad()
        network(x).backward(g)

    return step


def work(framework, seconds):
    """Measure in this process, once all workers are ready; print the microseconds of a step."""
    step = step_of(framework)
    for _ in range(20):
        step()
    print("ready", flush=True)
    sys.stdin.readline()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    print((time.perf_counter() - start) / steps * 1e6)


def measure(framework, workers, threads, seconds):
    """Return the microseconds of a step with `workers` processes at once; threads None: each framework's default."""
    variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MINIGRAD_NUM_THREADS")
    env = {key: value for key, value in os.environ.items() if key not in variables}
    if threads:
        env |= dict.fromkeys(variables, str(threads))
    command = [sys.executable, __file__, "--one", framework, "--seconds", str(seconds)]
    running = [
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]
    for process in running:
        if process.stdout.readline() != "ready\n":
            sys.exit(f"{framework} failed")
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return statistics.mean(float(process.communicate()[0]) for process in running)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=FRAMEWORKS, metavar="NAME",
                        help="minigrad, torch (default: both)")  # fmt: skip
    parser.add_argument("--workers", nargs="+", type=int, default=(1, 2, 4), help="processes (default: 1 2 4)")
    parser.add_argument("--rounds", type=int, default=3, help="whose median is reported (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a Markdown table")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)  # for the child processes
    args = parser.parse_args()
    if args.one:
        work(args.one, args.seconds)
        return
    kinds = [(f, n, threads) for n in args.workers for f in args.frameworks for threads in (None, 1)]
    found = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind in kinds:
            found[kind].append(measure(*kind, args.seconds))
    times = {kind: statistics.median(values) for kind, values in found.items()}
    if args.json:
        rows = [{"framework": f, "workers": n, "threads": t or "default", "us": us} for (f, n, t), us in times.items()]
        print(json.dumps({"cores": len(os.sched_getaffinity(0)), "results": rows}, indent=1))
        return
    print("| processes | " + " | ".join(f"{f}, default threads | {f}, one thread | ÷" for f in args.frameworks) + " |")
    print("|---|" + "---:|" * (3 * len(args.frameworks)))
    for n in args.workers:
        pairs = [(times[f, n, None], times[f, n, 1]) for f in args.frameworks]
        print(f"| {n} | " + " | ".join(f"{a:.0f} | {b:.0f} | {a / b:.2f}" for a, b in pairs) + " |")


if __name__ == "__main__":
    main()
