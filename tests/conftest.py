"""Setup for all tests: devices, seeded random numbers, Hypothesis profiles, the table's parameters, the quick set."""

import ctypes
import gc
import importlib.util
import os
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "helpers"))
pytest.register_assert_rewrite("checks")


def gpu():
    """Whether there are a GPU driver and CuPy; checked without importing CuPy, which the emulation may replace."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0 and importlib.util.find_spec("cupy") is not None
    except OSError:
        return False


# PyTorch's idle threads sleep: by default they spin, on a core that another test process needs.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Every test that takes `device` runs on each of these. Without a GPU, or with MINIGRAD_EMULATE=1, cuda:0 is emulated.
DEVICES = os.environ.setdefault("MINIGRAD_TEST_DEVICES", "cpu,cuda:0").split(",")
if os.environ.get("MINIGRAD_EMULATE", "0") != "0" or not gpu():
    sys.path.insert(0, str(Path(__file__).parent / "emulation"))
elif os.environ.get("MINIGRAD_PLAIN_ALLOCATIONS", "0") != "0":
    import cupy

    from minigrad.cuda import backend

    # Without pools, compute-sanitizer sees where each array ends.
    cupy.cuda.set_allocator(None)
    backend.KEPT = 1 << 62

# The examples are the same in every run, unless another profile is set: HYPOTHESIS_PROFILE=explore finds new ones.
settings.register_profile("default", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, for the tests of one file; without it, they are skipped."""
    from browsers import no_browser, start_browser

    if missing := no_browser():
        pytest.skip(f"pages are tested in a browser: there is not {missing}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = start_browser(driver)
        yield started
        started.close()


@pytest.fixture
def rng(request):
    """A random generator for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


def pytest_generate_tests(metafunc):
    """Run the tests of checks.Suite for every case of every operation in the suite."""
    if "case" in metafunc.fixturenames:
        found = [
            (op, case) for op in metafunc.cls.ops for case in op.cases if op.takes_part(metafunc.function.__name__)
        ]
        metafunc.parametrize("op, case", found, ids=[f"{op.name}{case}" for op, case in found])


# ── the quick set: `make test` runs pytest with --quick, `make test-all` without ──────────────────

# Files and tests that the quick set leaves out whole: they need PyTorch, Sphinx, a browser, CuPy, NVRTC, ONNX or other
# compilers, or take long and are made of what other tests check one by one.
FULL_FILES = {
    "api/test_pytorch_classes.py", "api/test_pytorch_meanings.py", "api/test_pytorch_scripts.py", "cuda/test_cupy.py",
    "cuda/test_nvrtc.py", "docs/test_figure_use.py", "docs/test_figures.py", "docs/test_site.py",
    "export/test_onnx_export.py", "export/test_onnx_load.py", "packaging/test_portability.py", "viz/test_explore_page.py",
}  # fmt: skip
FULL_TESTS = {
    "test_every_kernel_while_threads_take_turns", "test_minigrad_holds", "test_report_by_several_processes",
}  # fmt: skip
# Slow tests whose cases show the same in several places: the quick set has the first case.
FIRST_CASE = {
    "test_a_missing_barrier_of_a_block_group_shows", "test_a_process_ends_while_a_daemon_thread_computes",
    "test_agrees_with_the_other_kernels", "test_an_experiment_that_is_killed_goes_on_to_the_same_numbers",
    "test_experiment_on_a_gpu", "test_memory_outlives_the_kernels_that_use_it",
    "test_threads_may_take_turns_between_accesses_to_memory",
}  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="run one case of every behavior, without PyTorch")


def pytest_ignore_collect(collection_path, config):
    if config.getoption("quick") and collection_path in {Path(__file__).parent / name for name in FULL_FILES}:
        return True


def needs_torch(item):
    """Whether a test compares with PyTorch: it names `torch`, a helper such as `beside_torch`, or is given the module."""
    code, module = item.function.__code__, getattr(item.module, "torch", None)
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return (
        any("torch" in name.split("_") for name in (*code.co_names, *code.co_varnames, *code.co_freevars))
        or ("importorskip" in code.co_names and "torch" in code.co_consts)
        or any(value is module for value in given if module)
    )


def values(item):
    """Return what each parametrization gives a test: its arguments and their values, each known by its identity."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
    marks = [[name.strip() for name in names.split(",")] if isinstance(names, str) else names for names in marks]
    fixtures = [[name] for name in given if not any(name in names for names in marks)]
    return [(*names, *(id(given[name]) for name in names)) for names in marks + fixtures] or [()]


def choose_quick(items):
    """Return the tests of the quick set: every test with each value of each parametrization, not every combination.

    Values are tried on the CPU where they can be, and one on a GPU. Of an operation's cases in the table, each test of
    checks.Suite has one on each device, and not all tests the same one; `test_forward` has all of them on the CPU.
    """
    chosen, cases, seen = [], {}, set()
    for item in sorted(items, key=lambda item: "cuda:0" in item.name):
        if item.originalname in FULL_TESTS or needs_torch(item):
            continue
        name, call = item.nodeid.split("[")[0], getattr(item, "callspec", None)
        if call and "case" in call.params:
            op, device = call.params["op"].name, call.params["device"]
            own = item.originalname == "test_forward" and device == "cpu" and item.name
            cases.setdefault((name, op, device, own), []).append(item)
            continue
        found = {(name, *value) for value in (values(item) if item.originalname not in FIRST_CASE else [()])}
        if not found <= seen:
            chosen.append(item)
        seen |= found
    chosen += [same[zlib.crc32(name.encode()) % len(same)] for (name, *_), same in cases.items()]
    return set(chosen)


def pytest_terminal_summary(terminalreporter, config):
    if left := getattr(config, "left", None):
        terminalreporter.write_line(
            f"This was the quick set: `make test-all` runs {left} more tests, and {len(FULL_FILES)} more files."
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Tell pytest-xdist's main process how many tests its workers, all of which collect the same, have left out."""
    node.config.left = getattr(node, "workeroutput", {}).get("left")


SITE = "docs/test_site.py"
LONG = ("cuda/test_nvrtc.py", "examples/test_examples.py", "packaging/test_portability.py", "fuzz/test_fuzz.py",
        "engine/test_processes.py", "engine/test_ending_processes.py", "nn/test_training.py")  # fmt: skip


def pytest_collection_modifyitems(config, items):
    """Leave out what --quick does; let the first of two processes begin with the site, the second with the other long tests.

    xdist gives each process an equal part of the list, and one that is finished takes over tests from the end of
    another's part, so the long ones must not be there.
    """
    if config.getoption("quick"):
        chosen = choose_quick(items)
        left = [item for item in items if item not in chosen]
        config.hook.pytest_deselected(items=left)
        config.left = getattr(config, "workeroutput", {})["left"] = len(left)
        items[:] = [item for item in items if item in chosen]
    folder = Path(__file__).parent
    paths = {folder / name for name in LONG}
    site, others, rest = [], [], []
    for item in items:
        (site if item.path == folder / SITE else others if item.path in paths else rest).append(item)
    middle = max(len(items) // 2 - len(site), 0)
    items[:] = *site, *rest[:middle], *others, *rest[middle:]


def pytest_collection_finish():
    """Keep the garbage collector from visiting every collected test over and over."""
    gc.collect()
    gc.freeze()
