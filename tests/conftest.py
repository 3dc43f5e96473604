"""Setup for all tests: devices, seeded random numbers, Hypothesis profiles, and the table's parameters."""

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
    """Headless Chromium, for the tests of one file."""
    from checks import start_browser
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


SITE = "docs/test_site.py"
LONG = ("cuda/test_nvrtc.py", "examples/test_examples.py", "packaging/test_portability.py", "fuzz/test_fuzz.py",
        "engine/test_processes.py", "nn/test_training.py")  # fmt: skip


def pytest_collection_modifyitems(items):
    """Let the first of two processes begin with the site and the second with the other long tests.

    xdist gives each process an equal part of the list, and one that is finished takes over tests from the end of
    another's part, so the long ones must not be there.
    """
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
