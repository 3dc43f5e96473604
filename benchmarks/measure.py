"""Measure one workload in one framework in this process, and print one line of JSON.

The machine drifts, so that one run proves nothing: compare.py alternates such processes.
"""

import argparse
import json
import os
import time

FRAMEWORKS = ("minigrad", "torch", "torchc", "jax", "gemm")


def hold_to(threads):
    """Give this process `threads` cores and every library in it as many threads. Call before the imports."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(threads)
    if hasattr(os, "sched_setaffinity"):  # JAX takes its thread count from here alone
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def step_of(framework, workload, threads):
    """The function that does one step; raises Unavailable where the framework has no version of the workload."""
    import peers
    import workloads

    module = workloads if framework == "minigrad" else peers
    return getattr(module, f"{framework}_step")(workloads.parse(workload), threads)


def times_of(step, seconds, warmup=5):
    """Milliseconds of every call made within `seconds`, at least five."""
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
    parser.add_argument("framework", choices=FRAMEWORKS, help="torchc: torch.compile; gemm: the products alone")
    parser.add_argument("workload", help="such as mlp256_b128; workloads.py lists them")
    parser.add_argument("--threads", type=int, default=2, help="threads and cores to use (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure (default: %(default)s)")
    args = parser.parse_args()
    hold_to(args.threads)

    import numpy as np
    from workloads import Unavailable

    result = {"framework": args.framework, "workload": args.workload, "threads": args.threads}
    try:
        step = step_of(args.framework, args.workload, args.threads)
    except (Unavailable, ImportError) as error:
        if isinstance(error, ImportError) and error.name not in ("torch", "jax", "jaxlib", "optax"):
            raise
        print(json.dumps(result | {"unavailable": str(error)}))
        return
    times = times_of(step, args.seconds)
    result |= {"median_ms": round(float(np.median(times)), 4), "min_ms": round(min(times), 4), "steps": len(times)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
