"""Measure data-parallel training on two ranks: steps, what of the communication is hidden, and messages of many sizes.

A batch takes one rank with two threads, or two ranks with one thread and half of the batch each. The processes that
measure these alternate, as the speed of a machine drifts. Of two ranks, also measured are steps that send nothing (the
computation alone) and the sums of equal buckets without any computation; what a step takes beyond the computation is
communication that was not hidden. Each figure is the least of the rounds' medians.

With --output NAME, the figures are written to results/NAME.json.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

WORKLOADS = ("mlp1000_b128", "lnlstm_b32")
SIZES = [1 << k for k in range(8, 25, 2)]  # bytes of a message
RESULTS = Path(__file__).with_name("results")


def median(function, seconds):
    """Return the median milliseconds of a call; ranks make equally many calls."""
    from measure import times_of

    from minigrad import distributed

    if distributed.size() == 1:
        return statistics.median(times_of(function, seconds))
    function()
    begin = time.perf_counter()
    function()
    count = mean_of(seconds / max(time.perf_counter() - begin, 1e-6))
    times = []
    for _ in range(min(max(int(count), 5), 2000)):
        begin = time.perf_counter()
        function()
        times.append((time.perf_counter() - begin) * 1e3)
    return mean_of(statistics.median(times[len(times) // 5 :]))


def mean_of(number):
    """Return the mean over the ranks."""
    import minigrad as mg
    from minigrad import distributed

    return distributed.all_reduce_(mg.tensor(number, dtype="float64"), "mean").item()


def measure_steps(name, threads, seconds):
    """Return the milliseconds of a step, and on several ranks those of its computation and of its communication."""
    import workloads

    from minigrad import distributed
    from minigrad.ranks import communicator

    work = workloads.parse(name)
    size = distributed.size()
    models = []

    def wrap(model):
        axis = 1 if work.kind == "lnlstm" else 0  # of the samples
        models.append(distributed.DataParallel(model, batch_axis=axis) if size > 1 else model)
        return models[0]

    step = workloads.minigrad_step(work._replace(batch=work.batch // size), threads, wrap)
    found = {"step": median(step, seconds)}
    if size > 1:
        (model,) = models
        with model.no_sync():
            found["computation"] = median(step, seconds)
            quarter = workloads.minigrad_step(work._replace(batch=work.batch // size // 2), threads)
            found["computation of half as many samples"] = median(quarter, seconds)
        step()
        buckets = model._plan.buckets
        found |= {"buckets": len(buckets), "bytes": sum(p.nbytes for p in model.parameters())}

        def communicate():
            for bucket in buckets:
                bucket.send(communicator.world().background)
            for bucket in buckets:
                bucket.receive(size)
                bucket.reset()

        found["communication"] = median(communicate, seconds)
    return found


def measure_messages(seconds):
    """Return the milliseconds of a sum over the ranks by size in bytes, and of the comparison before an operation."""
    import minigrad as mg
    from minigrad import distributed
    from minigrad.ranks import communicator

    world = communicator.world()
    tensors = {size: mg.zeros(size // 4) for size in SIZES}
    sums = {size: median(lambda x=x: world.background.start(x).wait(), seconds / 10) for size, x in tensors.items()}
    small = mg.zeros(64)
    return {
        "sums": sums,
        "comparison": median(lambda: world.agree("barrier", "barrier"), seconds / 10),
        "all_reduce_": median(lambda: distributed.all_reduce_(small), seconds / 10),
    }


def work(args):
    """Measure in this process, one of several ranks or alone, and print a line of JSON."""
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    from minigrad import distributed

    distributed.init()
    if args.work == "messages":
        found = measure_messages(args.seconds)
    else:
        found = measure_steps(args.work, args.threads, args.seconds)
    if distributed.rank() == 0:
        print(json.dumps(found))


def started(ranks, threads, name, seconds):
    """Return what `work` found in processes of its own."""
    found = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    launcher = [shutil.which("mpiexec", path=found), "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, __file__, "--work", name, "--threads", threads, "--seconds", seconds]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often to repeat everything (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="for each measurement (default: %(default)s)")
    parser.add_argument("--output", metavar="NAME", help="write results/NAME.json")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args)
        return

    rounds = []
    for _ in range(args.rounds):
        found = {"messages": started(2, 1, "messages", args.seconds)}
        for name in WORKLOADS:
            found[name] = started(2, 1, name, args.seconds)
            found[name]["one rank"] = started(1, 2, name, args.seconds)["step"]
        rounds.append(found)

    def least(*path):
        """Return the least of a number over the rounds, that of the least disturbed one, or of each in a dict."""
        values = rounds
        for key in path:
            values = [value[key] for value in values]
        if isinstance(values[0], dict):
            return {key: least(*path, key) for key in values[0]}
        return min(values)

    result = {"messages": least("messages")}
    print("| ms per step | 1 rank, 2 threads | 2 ranks, 1 thread | ratio | computation | communication | hidden |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in WORKLOADS:
        result[name] = one = least(name)
        exposed = max(0.0, one["step"] - one["computation"])
        one["hidden"] = max(0.0, 1 - exposed / one["communication"])
        print(f"| {name} | {one['one rank']:.2f} | {one['step']:.2f} | {one['step'] / one['one rank']:.2f} | "
              f"{one['computation']:.2f} | {one['communication']:.2f} | {one['hidden']:.0%} |")  # fmt: skip
    print("\n| bytes | µs | GB/s |\n|---:|---:|---:|")
    for size, time_ in result["messages"]["sums"].items():
        print(f"| {size} | {time_ * 1e3:.1f} | {int(size) / time_ / 1e6:.2f} |")
    print(f"\ncomparison of a call: {result['messages']['comparison'] * 1e3:.1f} µs")
    if args.output:
        path = RESULTS / f"{args.output}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
