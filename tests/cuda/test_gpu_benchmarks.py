"""Run the benchmarks of GPUs, whole epochs and memory; without a GPU, the first use the emulation."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="no benchmarks beside these tests")


def run(script, *options):
    # it imports modules in its own folder, which PYTHONSAFEPATH of the checking builds forbids
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *options], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done


def test_workloads_run():
    names = ["ln_bwd_16x256", "copy_fwd_16x256", "softmax_fwd_16x256", "mlp256_b8"]
    before = sorted(BENCHMARKS.glob("results/*"))
    done = run("gpu.py", "--rounds", "1", "--seconds", "0", "--workloads", *names)
    for name in names[:3]:
        assert f"| {name} | " in done.stdout
    assert sorted(BENCHMARKS.glob("results/*")) == before
    if "on the emulation" in done.stderr:
        assert "4 workloads ran" in done.stdout


def test_the_time_of_the_processor_is_measured():
    found = re.findall(
        r"^(\w+).* +([\d.]+)(?:$|  (\d+) launches)", run("host_time.py", "ln_fwd_b8").stdout, re.MULTILINE
    )
    assert [name for name, *_ in found] == ["ln_fwd_b8", "launch", "allocation", "product", "Adam"]
    assert all(float(time) > 0 for _, time, _ in found)
    assert found[0][2] == "1"


@pytest.mark.parametrize("job", ["mlp", "lenet", "lnlstm"])
def test_an_epoch_is_measured(job):
    done = run("epoch.py", "--jobs", job, "--rounds", "1", "--batches", "2", "--threads", "1", "--peers")
    assert re.search(rf"^\| {job} \|( [\d.]+ \(loss \d\.\d+\) \|){{2}}  \|$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not tell the memory of a process")
def test_the_memory_of_steps_is_measured():
    found = json.loads(run("measure.py", "minigrad", "mlp256_b128", "--seconds", "0", "--threads", "1").stdout)
    assert 6 < found["peak_mib"] < 16  # the floor is 4.9
