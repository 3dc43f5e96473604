"""Measure minigrad and its peers on a GPU: norms and other operations relative to the bandwidth of a copy, and training
steps.

Every round runs a process per group of workloads and framework. With --write, the figures are written to
results/NAME.json after each process, and to results/NAME.md in the end, where NAME is that of the card; with --minutes
as well, no process starts after that time, and the next call measures what is missing. Without a GPU, everything runs
once on the emulation that the tests use, with small shapes and without peers, to check that it works; nothing is
written.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import compare
from tqdm import tqdm
from workloads import MATRIX_OPS, norm_shapes, parse

HERE = Path(__file__).resolve().parent
EMULATION = HERE.parent / "tests" / "emulation"
STEPS = (
    "chain",
    "mlp256_b8",
    "mlp256_b128",
    "mlp1000_b128",
    "lenet_b8",
    "lenet_b128",
    "gpt_b8",
    "attn_b8",
    "lstm_b32",
    "mingru_b32",
    "lnrnn_b32",
    "lnlstm_b32",
    "lnlstm_b32_h256",
    "lnlstm_b32_h512",
    "lnlstm_b32_h1024",
)
SMALL_STEPS = ("chain", "mlp256_b8", "lenet_b1", "lnrnn_b1", "lnlstm_b1", "lstm_b1", "mingru_b1")
MATRICES = ("128x256", "512x512", "2048x768", "4096x768", "8192x1024", "32768x1024", "65536x1024", "65536x2048")
SMALL_MATRICES = ("16x256",)
THREADS = 8  # of the processor; compilers use them
LARGE, SMALL = "8192x4096", "8x16"  # of the operations on one matrix
OPS = ("ln", "rms", "bn", "softmax")
IMAGES = ("in4", "gn4", "bn4")
PASSES = {"fwd": 2, "bwd": 3}  # arrays of the size of x that are read or written: x and y; x (or y), g and dx
OTHER_PASSES = {"add": 3, "sum": 1}
# PyTorch's loops over time steps are unrolled, and compiled for minutes
NOT_COMPILED = ("lnrnn", "lnlstm", "mingru")


class Group(NamedTuple):
    """Workloads that a process measures together, the frameworks, and how many steps are timed at once."""

    workloads: list[str]
    frameworks: tuple[str, ...]
    count: int

    def of(self, framework):
        """Return what a framework takes part in."""
        return [name for name in self.workloads if framework != "torchc" or not name.startswith(NOT_COMPILED)]


def groups(matrices, batch, matrix, steps, count):
    """Return the groups by name."""
    both = ("minigrad", "torch")
    norms = [f"{op}_{way}_{size}" for size in matrices for op in OPS for way in PASSES]
    norms += [f"{op}_{way}_b{batch}" for op in IMAGES for way in PASSES]
    copies = [f"copy_fwd_{size}" for size in (*matrices, planes(batch), matrix)]
    others = [f"{op}_fwd_{matrix}" for op in MATRIX_OPS if op != "copy"]
    return {
        "operations": Group([*copies, *others, *norms], both, 5 * count),
        "steps": Group(list(steps), ("minigrad", "captured", "torch", "torchg", "jax", "torchc"), count),
    }


def planes(batch):
    """Return the shape of a batch of images as a matrix: 64 planes of 28 x 28 for each image."""
    return f"{64 * batch}x{28 * 28}"


def bandwidth(workload, ms):
    """Return the bytes that the work must move, counting each once, divided by the time, in GB/s."""
    work = parse(workload)
    size = 4
    for length in norm_shapes(work)[0]:
        size *= length
    op, _, way = work.kind.partition("_")
    return OTHER_PASSES.get(op, PASSES[way]) * size / ms / 1e6


def norm_table(times):
    """Return a Markdown table of times and bandwidths, compared to a copy and to PyTorch."""
    copies = {name.removeprefix("copy_fwd_"): compare.medians(row) for name, row in times.items() if "copy" in name}
    lines = [["", "minigrad, µs", "GB/s", "of a copy", "PyTorch, µs", "÷ PyTorch"]]
    for name, row in times.items():
        found = compare.medians(row)
        ours = found.get("minigrad")
        if ours is None:
            continue
        size = name.rpartition("_")[2]
        if size.startswith("b"):
            size = planes(int(size[1:]))
        copy = min(copies.get(size, {}).values(), default=None)
        share = bandwidth(name, ours) / bandwidth(f"copy_fwd_{size}", copy) if copy else None
        torch = found.get("torch")
        lines.append(
            [
                name,
                f"{ours * 1e3:.3g}",
                f"{bandwidth(name, ours):.3g}",
                f"{share:.0%}" if share else "",
                f"{torch * 1e3:.3g}" if torch else "",
                f"**{ours / torch:.2g}**" if torch else "",
            ]
        )
    lines.insert(1, ["---"] + ["---:"] * (len(lines[0]) - 1))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def card():
    """Return the name of the GPU and the version of CUDA, or None on the emulation."""
    import minigrad as mg

    if not mg.cuda.is_available():
        return None
    import cupy

    if cupy.__version__ == "emulated":
        return None
    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), cupy.cuda.runtime.runtimeGetVersion()


def run(framework, workloads, args, count, times, missing):
    """Measure workloads in a process of their own; add to their times, or why they could not be measured."""
    command = [sys.executable, str(HERE / "measure.py"), framework, *workloads, "--device", "cuda",
               "--threads", str(THREADS), "--seconds", str(args.seconds), "--count", str(count)]  # fmt: skip
    with tempfile.TemporaryFile("w+") as lines, tempfile.TemporaryFile("w+") as errors:
        try:
            subprocess.run(command, stdout=lines, stderr=errors, timeout=args.limit, check=True)
            fault = ""
        except subprocess.TimeoutExpired:
            fault = f"its process took more than {args.limit:g} seconds"
        except subprocess.CalledProcessError:
            errors.seek(0)
            fault = f"its process failed: {errors.read().strip().splitlines()[-1:]}"
        lines.seek(0)
        found = {line["workload"]: line for line in map(json.loads, lines)}
    for name in workloads:
        line = found.get(name, {})
        if "median_ms" in line:
            times.setdefault(name, {}).setdefault(framework, []).append(line["median_ms"])
        else:
            missing[f"{compare.TITLES[framework]}, {name}"] = line.get("unavailable", fault)


def report(results, parts):
    """Return the tables of a results file."""
    times = results["times_ms"]
    steps = {name: times[name] for name in parts["steps"].workloads if name in times}
    text = compare.table({**results, "times_ms": steps})
    text += "\nNo TF32: all products and convolutions compute in float32. One operation at a time:\n\n"
    text += norm_table({name: times[name] for name in parts["operations"].workloads if name in times})
    text += "".join(f"\nNot measured: {name}: {reason}\n" for name, reason in results["not_measured"].items())
    return text + "".join(f"\n{remark}\n" for remark in results.get("remarks", ()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes per framework (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.2, help="per workload and process (default: %(default)s)")
    parser.add_argument("--workloads", nargs="+", metavar="NAME", help="only these workloads of workloads.py")
    parser.add_argument("--frameworks", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no process after this time")
    parser.add_argument("--limit", type=float, default=240, help="seconds for a process (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="write the figures to results/")
    args = parser.parse_args()
    found = card()
    if found is None:
        print("no GPU found: everything runs once on the emulation, and its times mean nothing", file=sys.stderr)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(EMULATION), os.environ.get("PYTHONPATH", "")])
        args.rounds, args.seconds, args.write = 1, 0, False
        parts = groups(SMALL_MATRICES, 1, SMALL, SMALL_STEPS, 1)
        args.frameworks = ["minigrad", "captured"]
    else:
        parts = groups(MATRICES, 32, LARGE, STEPS, 10)
    if args.workloads:
        chosen = {name: [w for w in args.workloads if ("wd" in w) == (name == "operations")] for name in parts}
        parts = {name: part._replace(workloads=chosen[name]) for name, part in parts.items()}
    if args.frameworks:
        parts = {
            name: part._replace(frameworks=tuple(f for f in part.frameworks if f in args.frameworks))
            for name, part in parts.items()
        }
    results, file = begin(args, found, parts)
    cells = [
        f"{k} {name} {framework}" for k in range(args.rounds) for name, part in parts.items()
        for framework in part.frameworks
    ]  # fmt: skip
    start = time.monotonic()
    for cell in tqdm([cell for cell in cells if cell not in results["measured"]], leave=False, disable=None):
        if time.monotonic() - start > 60 * args.minutes:
            print(f"{len(results['measured'])} of {len(cells)} processes ran: call this again for the others")
            break
        _, name, framework = cell.split()
        part = parts[name]
        run(framework, part.of(framework), args, part.count, results["times_ms"], results["not_measured"])
        results["measured"].append(cell)
        if args.write:
            file.write_text(json.dumps(results, indent=1) + "\n")
    print(report(results, parts))
    if found is None:
        print(f"{len(results['times_ms'])} workloads ran")
    if args.write:
        file.with_suffix(".md").write_text(report(results, parts))


def begin(args, found, parts):
    """Return the results so far, if a call with the same arguments and versions left any, and their file."""
    import minigrad as mg

    name, cuda = found or ("emulation", 0)
    frameworks = list(parts["steps"].frameworks)
    versions = {"minigrad": mg.__version__, **compare.versions(frameworks)}
    if found:
        versions["cupy"] = importlib.metadata.version(cupy_package())
    results = {
        "cpu": f"{name}, CUDA {cuda // 1000}.{cuda % 1000 // 10}",
        "threads": THREADS,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": versions,
        "frameworks": frameworks,
    }
    file = HERE / "results" / (re.sub(r"\W+", "-", name.lower()).strip("-") + ".json")
    if args.write and file.exists():
        before = json.loads(file.read_text())
        complete = len(before["measured"]) == args.rounds * sum(len(part.frameworks) for part in parts.values())
        if not complete and all(before[key] == value for key, value in results.items()):
            return before, file
    return results | {"measured": [], "times_ms": {}, "not_measured": {}}, file


def cupy_package():
    """Return the name of the installed CuPy package: cupy-cuda12x, cupy-cuda13x, or cupy itself."""
    return next(iter(importlib.metadata.packages_distributions()["cupy"]))


if __name__ == "__main__":
    main()
