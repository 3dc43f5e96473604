"""Measure minigrad and its peers in alternating processes; print a Markdown table of times and ratios.

Every round runs every framework on every workload once, each in a separate process, so that a drift in the machine's
speed affects all of them. A time is the median over the rounds of the median step; a ratio is a quotient of two times.

With --output NAME, the figures are written to results/NAME.json and the table to results/NAME.md; --readme also
replaces the table in README.md.
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tqdm import tqdm
from workloads import floor, parse

HERE = Path(__file__).resolve().parent
WORKLOADS = (
    "chain",
    "mlp256_b8",
    "mlp256_b128",
    "mlp1000_b128",
    "lenet_b8",
    "lenet_b128",
    "lnrnn_b32",
    "lnlstm_b32",
    "lstm_b32",
    "mingru_b32",
    "gpt_b8",
    "attn_b8",
    "ln_fwd",
    "ln_bwd",
)
FRAMEWORKS = ("minigrad", "torch", "torchc", "jax", "captured", "medium", "torchm", "torcha", "gemm")
TITLES = {
    "minigrad": "minigrad", "captured": "captured", "medium": "medium", "torch": "PyTorch", "torchc": "torch.compile",
    "torchg": "CUDA Graphs", "torchm": "PyTorch, medium", "torcha": "autocast", "jax": "JAX", "gemm": "products alone",
}  # fmt: skip
IN_MEMORY = ("minigrad", "torch", "jax")  # the frameworks whose memory is in the table
MARKS = ("<!-- speed: written by benchmarks/compare.py -->", "<!-- /speed -->")


def cpu_name():
    """Return the name of the processor."""
    if sys.platform == "darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    try:
        return re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.processor() or platform.machine()


def versions(frameworks):
    """Return the version of every package that takes part and is installed."""
    packages = {"minigrad": "minigrad", "torch": "torch", "jax": "jax", "gemm": "numpy", "keras": "keras"}
    found = {}
    for package in (packages[name] for name in frameworks if name in packages):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def measure(framework, workload, threads, seconds, more=()):
    """Run measure.py in a process, with `more` options, and return its result as a dict."""
    command = [sys.executable, str(HERE / "measure.py"), framework, workload]
    done = subprocess.run(
        [*command, "--threads", str(threads), "--seconds", str(seconds), *more], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{framework} failed on {workload}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(workloads, frameworks, threads, rounds, seconds, more=()):
    """Return {workload: {framework: [median ms per round]}}, the same of MiB, and why the rest was not measured."""
    times, peaks = ({workload: {framework: [] for framework in frameworks} for workload in workloads} for _ in "ab")
    reasons = {}
    with tqdm(
        total=rounds * len(workloads) * len(frameworks), unit="run", dynamic_ncols=True, leave=False, disable=None
    ) as bar:
        for _ in range(rounds):
            for workload in workloads:
                for framework in frameworks:
                    bar.set_description(f"{workload} {framework}")
                    if (framework, workload) not in reasons:
                        result = measure(framework, workload, threads, seconds, more)
                        if "unavailable" in result:
                            reasons[framework, workload] = result["unavailable"]
                        else:
                            times[workload][framework].append(result["median_ms"])
                            if "peak_mib" in result:
                                peaks[workload][framework].append(result["peak_mib"])
                    bar.update()
    notes = [f"{TITLES[framework]}, {workload}: {reason}" for (framework, workload), reason in reasons.items()]
    return times, peaks, notes


def medians(row):
    """Return {framework: median} of the times or MiB for the frameworks that were measured."""
    return {framework: statistics.median(times) for framework, times in row.items() if times}


PEERS = ("torch", "torchc", "torchg", "torchm", "torcha", "jax")


def ratios(row):
    """Return quotients by title: of minigrad's time, in "medium" where that was measured, over those of others."""
    times = medians(row)
    ours, peers = times.get("medium", times.get("minigrad")), [times[name] for name in PEERS if name in times]
    others = {"÷ PyTorch": times.get("torch"), "÷ best peer": min(peers, default=None)}
    if "medium" in row:
        others = {"÷ minigrad": times.get("minigrad")} | others
    return {title: ours / other if ours and other else None for title, other in others.items()}


def shown(ms):
    """Format with three digits and without an exponent."""
    return f"{ms:.3g}" if ms < 999.5 else f"{ms:.0f}"


def table(results):
    """Return the Markdown table of a results file."""
    frameworks = results["frameworks"]
    peaks, in_memory = results.get("peaks_mib", {}), [name for name in IN_MEMORY if name in frameworks]
    header = ["ms per step", *(TITLES[name] for name in frameworks), *ratios(dict.fromkeys(frameworks, ()))]
    if peaks:
        header.append("MiB")
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)]
    for workload, row in results["times_ms"].items():
        times = medians(row)
        cells = [shown(times[name]) if name in times else "" for name in frameworks]
        lines.append(
            [workload, *cells, *("" if ratio is None else f"**{ratio:.2g}**" for ratio in ratios(row).values())]
        )
        if peaks:
            used, least = medians(peaks[workload]), results["floors_mib"][workload]
            shares = [f"{used[name]:.0f}" if name in used else "–" for name in in_memory]
            if least is not None:
                shares[0] += f" ({least:.0f})"
            lines[-1].append(" / ".join(shares))
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    count = results["threads"]
    rounds = results["rounds"]
    caption = (
        f"{results['cpu']}, {count} thread{'s' if count > 1 else ''}, float32; "
        f"{f'medians of {rounds} alternating runs' if rounds > 1 else 'one run of each'}; {versions}, "
        f"Python {results['python']}."
    )
    if results["times_ms"].get("chain", {}).get("jax"):
        caption += " Under JAX the chain is one compiled function: no tape is built while it runs."
    if peaks:
        caption += (
            f" MiB: {' / '.join(TITLES[name] for name in in_memory)}, resident memory at the peak of a step above that "
            "after the imports; in parentheses, the least that the arrays of a step need (`floor` in workloads.py)."
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{caption}\n"


def put_into(readme, text):
    """Replace the text between the two marks in the README."""
    before, rest = readme.read_text().split(MARKS[0])
    readme.write_text(f"{before}{MARKS[0]}\n{text}{MARKS[1]}{rest.split(MARKS[1])[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workloads",
        nargs="+",
        default=WORKLOADS,
        metavar="NAME",
        help=f"any of workloads.py (default: {' '.join(WORKLOADS)})",
    )
    parser.add_argument(
        "--frameworks",
        nargs="+",
        choices=FRAMEWORKS,
        default=FRAMEWORKS[:4],
        metavar="NAME",
        help=f"any of {' '.join(FRAMEWORKS)} (default: the first four)",
    )
    parser.add_argument("--threads", type=int, default=2, help="threads and cores for each (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="processes per framework (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measurement per process (default: %(default)s)")
    parser.add_argument("--output", metavar="NAME", help="write results/NAME.json and results/NAME.md")
    parser.add_argument("--readme", action="store_true", help="also put the table into README.md")
    args = parser.parse_args()
    for workload in args.workloads:
        try:
            parse(workload)
        except ValueError as error:
            parser.error(str(error))
    if args.threads > (os.cpu_count() or 1):
        parser.error(f"expected at most {os.cpu_count()} threads, the cores of this machine, got {args.threads}")
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:
        print(f"this machine is busy (load {os.getloadavg()[0]:.1f}): the figures may mislead", file=sys.stderr)

    times, peaks, notes = compare(args.workloads, args.frameworks, args.threads, args.rounds, args.seconds)
    results = {
        "cpu": cpu_name(),
        "threads": args.threads,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": versions(args.frameworks),
        "frameworks": list(args.frameworks),
        "times_ms": times,
        "peaks_mib": peaks,
        "floors_mib": {workload: floor(parse(workload)) for workload in args.workloads},
        "notes": notes,
    }
    text = table(results)
    print(text)
    for note in notes:
        print("not measured:", note)
    if args.output:
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"{args.output}.json").write_text(json.dumps(results, indent=1) + "\n")
        (HERE / "results" / f"{args.output}.md").write_text(text)
    if args.readme:
        put_into(HERE.parent / "README.md", text)


if __name__ == "__main__":
    main()
