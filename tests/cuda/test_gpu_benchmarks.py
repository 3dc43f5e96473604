"""The GPU benchmarks run, on the emulation if there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks beside these tests")
def test_workloads_run():
    names = ["ln_bwd_16x256", "copy_fwd_16x256", "softmax_fwd_16x256", "mlp256_b8"]
    before = sorted(BENCHMARKS.glob("results/*"))
    # it imports modules in its own folder, which PYTHONSAFEPATH of the checking builds forbids
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, BENCHMARKS / "gpu.py", "--rounds", "1", "--seconds", "0", "--workloads", *names],
                          capture_output=True, text=True, env=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in names[:3]:
        assert f"| {name} | " in done.stdout
    assert sorted(BENCHMARKS.glob("results/*")) == before
    if "on the emulation" in done.stderr:
        assert "4 workloads ran" in done.stdout
