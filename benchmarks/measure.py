"""Measure workloads in one framework in this process, and print a line of JSON for each.

peak_mib is how much more memory of the process is resident at the peak of its steps than after the imports, when the
framework has started: parameters, activations, scratch buffers, compiled code, compilers, threads. Pages of files do
not count, such as those of libraries: how many are resident depends on how the system has read the file. Nor do the
first five steps, in which JAX and torch.compile need the most. It holds for the first workload of a process.

As the speed of a machine drifts, a single run proves nothing: compare.py alternates such processes.
"""

import argparse
import json
import os
import time

FRAMEWORKS = ("minigrad", "captured", "medium", "torch", "torchc", "torchg", "torchm", "torcha", "jax", "gemm")


def hold_to(threads):
    """Limit this process to `threads` cores, and every library in it to as many threads. Call before the imports."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(threads)
    if hasattr(os, "sched_setaffinity"):  # JAX takes its thread count only from here
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def finish_of(framework, device):
    """Return the function that waits for a step to finish, given the step's result."""
    if framework == "jax":
        import jax

        return jax.block_until_ready
    if device == "cpu":
        return lambda result: None
    if framework in ("minigrad", "captured"):
        import minigrad as mg

        return lambda result: mg.cuda.synchronize()
    import torch

    return lambda result: torch.cuda.synchronize()


def resident(peak=False):
    """Return the MiB of this process that are in memory, or the most that were, without pages of files.

    None if the system does not tell.
    """
    try:
        with open("/proc/self/status") as file:
            found = dict(line.split(":", 1) for line in file)
    except OSError:
        return None
    all_pages, files = (int(found[name].split()[0]) for name in ("VmHWM" if peak else "VmRSS", "RssFile"))
    return (all_pages - files) / 1024


def forget_peak():
    """Let the peak of this process start again from what is in memory."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def import_all(framework):
    """Import what a framework's step uses, and start it, so that its memory is that before the first step."""
    import workloads

    workloads.inputs(workloads.parse("tiny_b1"))  # NumPy loads its generators late
    if framework in ("minigrad", "captured"):
        from minigrad import nn, optim  # noqa: F401
    elif framework == "jax":
        import jax
        import optax  # noqa: F401

        jax.devices()
    elif framework != "gemm":
        import torch  # noqa: F401


def step_of(framework, workload, threads, device="cpu", count=1):
    """Return the function that runs `count` steps and waits for the last.

    Raises Unavailable if the framework has no version of the workload.
    """
    import peers
    import workloads

    if framework == "jax" and device == "cuda":
        import jax

        if jax.default_backend() != "gpu":
            raise workloads.Unavailable(f"this JAX runs on the {jax.default_backend()}: pip install 'jax[cuda12]'")
    module = workloads if framework in ("minigrad", "captured", "medium") else peers
    step = getattr(module, f"{framework}_step")(workloads.parse(workload, device), threads)
    finish = finish_of(framework, device)

    def steps():
        for _ in range(count - 1):
            step()
        finish(step())

    return steps


def times_of(step, seconds, warmup=5):
    """Return the milliseconds of every call made within `seconds`, at least five, after `warmup` others."""
    for _ in range(warmup):
        step()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 5:
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "framework",
        choices=FRAMEWORKS,
        help='captured: minigrad.capture; medium: minigrad with the precision "medium"; torchc: torch.compile; '
        'torchg: CUDA Graphs; torchm: PyTorch with the precision "medium"; torcha: under autocast to bfloat16; '
        "gemm: only the matrix products",
    )
    parser.add_argument("workloads", nargs="+", help="such as mlp256_b128; workloads.py lists them")
    parser.add_argument("--threads", type=int, default=2, help="threads and cores to use (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs (default: %(default)s)")
    parser.add_argument(
        "--count",
        type=int,
        default=1,
        metavar="N",
        help="time N steps together, as a GPU computes while the next step is queued (default: %(default)s)",
    )
    args = parser.parse_args()
    hold_to(args.threads)
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    else:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    for workload in args.workloads:
        print(json.dumps(measured(workload, args)), flush=True)


def measured(workload, args):
    """Return what is printed for a workload."""
    import numpy as np
    from workloads import Unavailable

    result = {"framework": args.framework, "workload": workload, "threads": args.threads}
    try:
        import_all(args.framework)
        before = resident()
        step = step_of(args.framework, workload, args.threads, args.device, args.count)
    except (Unavailable, ImportError) as error:
        if isinstance(error, ImportError) and error.name not in ("torch", "jax", "jaxlib", "optax"):
            raise
        return result | {"unavailable": str(error)}
    for _ in range(5 if args.count == 1 else 1):
        step()
    if before is not None:
        forget_peak()
    times = [ms / args.count for ms in times_of(step, args.seconds, 0)]
    if before is not None:
        peak = round(resident(peak=True) - before, 1)  # before NumPy imports what a median needs
    result |= {"median_ms": round(float(np.median(times)), 4), "min_ms": round(min(times), 4), "steps": len(times)}
    if before is not None:
        result["peak_mib"] = peak
    return result


if __name__ == "__main__":
    main()
