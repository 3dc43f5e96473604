"""Measure minigrad and its peers on a GPU, in alternating processes: norms and softmax relative to the bandwidth of a
copy, and training steps.

With --write, the figures are written to results/NAME.json and results/NAME.md, where NAME is that of the card. Without
a GPU, everything runs once on the emulation that the tests use, with small shapes and without peers, to check that it
works; nothing is written.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import sys
from pathlib import Path

import compare
from workloads import norm_shapes, parse

HERE = Path(__file__).resolve().parent
EMULATION = HERE.parent / "tests" / "emulation"
STEPS = (
    "chain",
    "mlp256_b8",
    "mlp256_b128",
    "mlp1000_b128",
    "lenet_b8",
    "lenet_b128",
    "lnrnn_b32",
    "lnlstm_b32",
    "lstm_b32",
)
SMALL_STEPS = ("chain", "mlp256_b8", "lenet_b1", "lnrnn_b1", "lnlstm_b1", "lstm_b1")
MATRICES = ("128x256", "4096x768", "32768x1024", "65536x2048")
SMALL_MATRICES = ("16x256",)
OPS = ("ln", "rms", "bn", "softmax")
IMAGES = ("in4", "gn4", "bn4")
PASSES = {"fwd": 2, "bwd": 3}  # arrays of the size of x that are read or written: x and y; x (or y), g and dx


def norms(matrices, batch):
    """Return the workloads of one normalization each, and the copies of arrays of the same sizes."""
    names = [f"{op}_{way}_{size}" for size in matrices for op in OPS for way in PASSES]
    names += [f"{op}_{way}_b{batch}" for op in IMAGES for way in PASSES]
    return [*(f"copy_fwd_{size}" for size in (*matrices, planes(batch))), *names]


def planes(batch):
    """Return the shape of a batch of images as a matrix: 64 planes of 28 x 28 for each image."""
    return f"{64 * batch}x{28 * 28}"


def bandwidth(workload, ms):
    """Return the bytes that the work must move, counting each once, divided by the time, in GB/s."""
    work = parse(workload)
    size = 4
    for length in norm_shapes(work)[0]:
        size *= length
    return PASSES[work.kind.rpartition("_")[2]] * size / ms / 1e6


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes per framework (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measurement per process (default: %(default)s)")
    parser.add_argument("--workloads", nargs="+", metavar="NAME", help="only these workloads of workloads.py")
    parser.add_argument("--write", action="store_true", help="write the figures to results/")
    args = parser.parse_args()
    found = card()
    more = ["--device", "cuda"]
    if found is None:
        print("no GPU found: everything runs once on the emulation, and its times mean nothing", file=sys.stderr)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(EMULATION), os.environ.get("PYTHONPATH", "")])
        frameworks, rounds, seconds = ["minigrad"], 1, 0
        steps, single = list(SMALL_STEPS), norms(SMALL_MATRICES, 1)
    else:
        frameworks, rounds, seconds = list(compare.FRAMEWORKS[:4]), args.rounds, args.seconds
        steps, single = list(STEPS), norms(MATRICES, 32)
    if args.workloads:
        steps, single = ([name for name in args.workloads if ("wd" in name) == both] for both in (False, True))
    counts = ("1", "1") if found is None else ("10", "100")
    times, missing = {}, []
    for workloads, kinds, count in ((steps, frameworks, counts[0]), (single, frameworks[:2], counts[1])):
        measured, notes = compare.compare(workloads, kinds, 1, rounds, seconds, [*more, "--count", count])
        times |= measured
        missing += notes
    print(*missing, sep="\n", file=sys.stderr)
    if found is None:
        print(norm_table({name: times[name] for name in single}))
        print(f"{len(times)} workloads ran")
        return
    name, cuda = found
    versions = compare.versions(frameworks) | {"cupy": importlib.metadata.version(cupy_package())}
    results = {
        "cpu": f"{name}, CUDA {cuda}",
        "threads": 1,
        "rounds": rounds,
        "seconds": seconds,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": versions,
        "frameworks": frameworks,
        "gpu_times_ms": times,
        "not_measured": missing,
    }
    text = compare.table({**results, "times_ms": {name: times[name] for name in steps}})
    text += f"\nOne operation at a time; float32, medians of {rounds} runs.\n\n"
    text += norm_table({name: times[name] for name in single})
    text += "".join(f"\nNot measured: {note}\n" for note in missing)
    print(text)
    if not args.write:
        return
    file = re.sub(r"\W+", "-", name.lower()).strip("-")
    (HERE / "results" / f"{file}.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "results" / f"{file}.md").write_text(text)


def cupy_package():
    """Return the name of the installed CuPy package: cupy-cuda12x, cupy-cuda13x, or cupy itself."""
    return next(iter(importlib.metadata.packages_distributions()["cupy"]))


if __name__ == "__main__":
    main()
