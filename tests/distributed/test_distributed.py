"""Several processes, started by mpiexec: gradients, checkpoints, errors. The checks themselves are in helpers/ranks.

One launch runs several checks, as starting the processes takes longer than most of them, and each has a time limit.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from checks import raises

import minigrad as mg
from minigrad import data, distributed, nn
from minigrad.engine.tape.hooks import call_after_pass
from minigrad.engine.tape.node import GradientError

RANKS = "-m", "helpers.ranks"
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
LIMIT = 40  # seconds


def launch(count, *command, limit=LIMIT, **variables):
    """Run a command on several ranks; return the exit status, the output and the seconds it took."""
    assert MPIEXEC, "no mpiexec: pip install '.[mpi]'"
    variables = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)} | variables
    environment = {name: value for name, value in variables.items() if value is not None}
    begin = time.monotonic()
    with subprocess.Popen(
        [MPIEXEC, "-n", str(count), sys.executable, *map(str, command)], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpiexec ends its ranks
            output, _ = process.communicate(timeout=10)
            pytest.fail(f"{command} on {count} ranks took more than {limit} s:\n{output}")
    return process.returncode, output, time.monotonic() - begin


def passes(count, folder, *names, **variables):
    status, output, _ = launch(count, *RANKS, folder, *names, **variables)
    assert status == 0, output
    assert output.count(f"passed {' '.join(names)}") == count, output
    return output


CHECKS = ("operations", "differentiable", "whole_batch", "needs_synchronization", "one_value", "sent_early", "accumulation",
          "several_models", "passes_within_passes", "unused_and_frozen", "failed_and_repeated", "random_numbers", "fifty_steps")  # fmt: skip


# One rank needs no launcher, but may have one.
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_ranks_equal_one_process(count, tmp_path):
    passes(count, tmp_path, *CHECKS)


def test_same_bits_in_every_run(tmp_path):
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        passes(3, tmp_path / run, "whole_batch", "fifty_steps")
    for name in ("bits", "steps"):
        assert (tmp_path / "first" / name).read_text() == (tmp_path / "second" / name).read_text()


def test_checkpoints(tmp_path):
    """A run of 4 ranks resumes to the same bits, and goes on with 2 ranks with the same samples in every batch."""
    passes(4, tmp_path, "save", "resume", "uninterrupted")
    passes(2, tmp_path, "resume")
    batches, bits = eval((tmp_path / "resumed 4").read_text())
    assert bits == (tmp_path / "uninterrupted").read_text()
    assert len(batches) == 3 * 3 - 4
    order = data.DataLoader(data.ArrayDataset(mg.arange(22)), 8, shuffle=True, seed=1)
    whole = [sorted(x.tolist()) for _ in range(3) for (x,) in order]
    assert batches == whole[4:]
    other, _ = eval((tmp_path / "resumed 2").read_text())
    assert other == batches


@pytest.mark.parametrize("count", [2, 3])
def test_bad_input_is_an_error_on_every_rank(count, tmp_path):
    passes(count, tmp_path, "refused_calls", "refused_models", "refused_steps")


def test_gpus(tmp_path):
    """The calls of NCCL, through the emulation of CuPy, whose communicator connects the ranks by MPI."""
    emulation = str(Path(__file__).parents[1] / "emulation")
    path = os.pathsep.join([emulation, *(part for part in sys.path if part != emulation)])
    passes(2, tmp_path, "gpus", "without_nccl", PYTHONPATH=path)


def test_one_rank_on_cuda(tmp_path):
    """NCCL itself on a machine with a GPU, elsewhere the emulation of CuPy."""
    passes(1, tmp_path, "one_gpu")


@pytest.mark.parametrize(("variables", "expected"), [
    ({"MINIGRAD_NUM_THREADS": "5"}, 5), ({"OMP_NUM_THREADS": "3"}, 3), ({}, max(1, len(os.sched_getaffinity(0)) // 2)),
])  # fmt: skip
def test_ranks_share_the_cores(variables, expected):
    """The launcher leaves both ranks on all cores."""
    code = "import os, minigrad as mg; mg.distributed.init(); os.write(1, b'threads: %d\\n' % mg.get_num_threads())"
    unset = {"OMP_NUM_THREADS": None, "MINIGRAD_NUM_THREADS": None}
    _, output, _ = launch(2, "-c", code, **unset | variables)
    assert output.count(f"threads: {expected}\n") == 2, output


# ── the end of a run ──────────────────────────────────────────────────────────────────────────────


def test_an_uncaught_error_ends_all_ranks(tmp_path):
    status, output, seconds = launch(3, *RANKS, tmp_path, "uncaught")
    assert status != 0
    assert "minigrad: rank 1 of 3: uncaught ArithmeticError, which ends all ranks" in output
    assert "ArithmeticError: of one rank" in output
    assert "passed" not in output
    assert seconds < 20


def test_a_killed_rank_ends_the_others(tmp_path):
    """The launcher ends them, and reports the signal and one of the processes, whose ranks are in the log."""
    status, output, seconds = launch(3, *RANKS, tmp_path, "killed")
    assert status != 0
    assert "Killed (signal 9)" in output
    processes = dict(re.findall(r"rank (\d) of 3: process (\d+) on ", output))
    assert set(processes) == {"0", "1", "2"}
    assert re.search(r"PID (\d+) RUNNING", output)[1] in processes.values()
    assert "passed" not in output
    assert seconds < 20


def test_a_rank_that_waits_in_vain_says_so(tmp_path):
    status, output, seconds = launch(2, *RANKS, tmp_path, "no_backward", MINIGRAD_DISTRIBUTED_TIMEOUT="2")
    assert status != 0
    assert "waited 2 s for the other ranks, which called something else or nothing" in output
    assert seconds < 20


# ── one process ───────────────────────────────────────────────────────────────────────────────────


def python(code, **variables):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT)


def test_without_a_launcher_nothing_is_imported():
    code = """
import sys, minigrad as mg
assert "minigrad.distributed" not in sys.modules
mg.distributed.init()
assert (mg.distributed.rank(), mg.distributed.size(), mg.distributed.local_rank()) == (0, 1, 0)
model = mg.distributed.DataParallel(mg.nn.Sequential(mg.nn.Linear(2, 2), mg.nn.SyncBatchNorm(2)))
model(mg.ones((3, 2))).sum().backward()
assert not [name for name in sys.modules if name.startswith(("mpi4py", "cupy"))]
mg.distributed.init()
"""
    done = python(code)
    assert done.stderr.endswith("RuntimeError: [init] expected one call, got a second\n"), done.stderr


LAUNCHED = [
    {"PMI_RANK": "1", "PMI_SIZE": "4"}, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "1"},
    {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, {"PMI_RANK": "0", "PMI_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
]  # fmt: skip


@pytest.mark.parametrize("variables", LAUNCHED, ids=lambda v: next(iter(v)))
def test_a_launcher_needs_mpi4py(variables):
    done = python("import sys; sys.modules['mpi4py'] = None; import minigrad.distributed as d; d.init()", **variables)
    assert "[init] a launcher started this process as one of 4, which needs mpi4py" in done.stderr
    assert done.stderr.endswith("pip install '.[mpi]'\n")
    done = python("import minigrad.distributed as d; d.rank()", **variables)
    assert "[distributed] a launcher started this process as one of several: call init() first" in done.stderr


def test_a_launcher_of_another_mpi():
    done = python("import minigrad.distributed as d; d.init()", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4")
    assert "as one of 4, but mpi4py finds itself alone: its library is MPICH" in done.stderr


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shards_hold_every_sample_once(size, drop_last):
    samples = data.ArrayDataset(mg.arange(31))
    whole = data.DataLoader(samples, 8, True, 5, drop_last)
    shards = [data.DataLoader(samples, 8, True, 5, drop_last, shard=(rank, size)) for rank in range(size)]
    for _ in range(2):
        for (expected,), *parts in zip(whole, *shards, strict=True):
            parts = [part.tolist() for (part,) in parts]
            assert sorted(chain.from_iterable(parts)) == sorted(expected.tolist())
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert shards[0].state_dict() == whole.state_dict()


@pytest.mark.parametrize("error, text, options", [
    (ValueError, "expected a rank from 0 to 1 in a shard, got 2", {"shard": (2, 2)}),
    (ValueError, "size of a shard", {"shard": (0, 0)}),
    (TypeError, r"expected a shard \(rank, size\), got 3", {"shard": 3}),
    (ValueError, "expected a seed with a shard", {"shard": (0, 2), "shuffle": True}),
    (ValueError, "for each of 5 processes, got a batch of 4", {"shard": (0, 5)}),
    (ValueError, "for each of 3 processes, got the last batch of 2", {"shard": (0, 3)}),
])  # fmt: skip
def test_shards_that_are_refused(error, text, options):
    raises(error, text, data.DataLoader, data.ArrayDataset(mg.arange(10)), 4, **options)


def test_converted_layers_keep_their_state():
    shared = nn.BatchNorm1d(3)
    model = nn.Sequential(
        shared, nn.Linear(3, 3), shared, nn.Sequential(nn.BatchRenorm1d(3), nn.BatchNorm2d(3, momentum=None))
    )
    model.eval()
    before, parameters = model.state_dict(), list(model.parameters())
    assert nn.SyncBatchNorm.convert_sync_batchnorm(model) is model
    kinds = [type(layer).__name__ for layer in model.modules()]
    assert kinds == ["Sequential", "SyncBatchNorm", "Linear", "Sequential", "BatchRenorm1d", "SyncBatchNorm"]
    assert model[0] is model[2]
    assert not model[0].training
    assert model[3][1].momentum is None
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert before.keys() == model.state_dict().keys()
    alone = nn.convert_sync_batchnorm(shared)
    assert type(alone) is nn.SyncBatchNorm
    assert alone.weight is shared.weight
    raises(TypeError, "expected a Module, got int", nn.convert_sync_batchnorm, 3)


def test_a_hooked_leaf_is_visited_when_its_gradient_is_complete():
    """Its hook runs before the operations that are older than all its uses."""
    seen = []
    x, w, v = (mg.tensor([float(k)], requires_grad=True) for k in (1, 2, 3))
    h = x * w  # the oldest use of w
    h.register_hook(lambda g: seen.append("h"))
    y = h * v
    y.register_hook(lambda g: seen.append("y"))
    z = y * v + y * w
    for name, leaf in {"v": v, "w": w, "x": x}.items():
        leaf.register_hook(lambda g, name=name: seen.append(name))
    z.backward()
    assert seen == ["y", "v", "h", "w", "x"]
    np.testing.assert_array_equal([x.grad.item(), w.grad.item(), v.grad.item()], [30.0, 21.0, 16.0])


def test_hooks_after_an_accumulation():
    """They outlive the leaf; what they put off runs once, at the end of the outermost pass, unless that fails."""
    box, heard = {"leaf": mg.ones(2, requires_grad=True)}, []

    def end():
        heard.append("end")

    def hook(x):
        heard.append(x.grad.tolist())
        call_after_pass(end)
        call_after_pass(end)

    box["leaf"].register_post_accumulate_grad_hook(lambda x: box.clear())
    handle = box["leaf"].register_post_accumulate_grad_hook(hook)
    y = (box["leaf"] * 2).sum()
    y.backward()
    assert heard == [[2.0, 2.0], "end"]
    raises(GradientError, "expected a running backward pass", call_after_pass, end)

    class Inner(mg.Function):
        @staticmethod
        def forward(ctx, x, fails):
            ctx.fails = fails
            return x * 1

        @staticmethod
        def backward(ctx, g):
            with mg.enable_grad():
                (leaf * 3).sum().backward()
            heard.append("inner")
            return 1 / 0 if ctx.fails else g, None

    leaf = mg.ones(1, requires_grad=True)
    handle = leaf.register_post_accumulate_grad_hook(hook)
    for fails in (True, False):
        heard.clear()
        leaf.grad = None
        x = mg.ones(1, requires_grad=True)
        if fails:
            with pytest.raises(ZeroDivisionError):
                Inner.apply(x, fails).sum().backward()
            assert heard == [[3.0], "inner"]
        else:
            Inner.apply(x, fails).sum().backward()
            assert heard == [[3.0], "inner", "end"]
    handle.remove()
    heard.clear()
    (leaf * 2).sum().backward()
    assert heard == []


def test_hooks_after_an_accumulation_need_a_leaf():
    x = mg.ones(1, requires_grad=True)
    for y, text in ((x * 2, "that was computed"), (mg.ones(1), "that does not require grad")):
        raises(GradientError, text, y.register_post_accumulate_grad_hook, print)
    raises(TypeError, "expected a function of the tensor, got 3", x.register_post_accumulate_grad_hook, 3)


def test_data_parallel_of_one_process_only_calls_the_model():
    model = nn.Linear(2, 1)
    wrapped = distributed.DataParallel(model)
    assert wrapped.state_dict().keys() == model.state_dict().keys()
    wrapped.load_state_dict(model.state_dict())
    x = mg.ones((3, 2))
    assert wrapped(x).tolist() == model(x).tolist()
    assert [p is q for p, q in zip(model.parameters(), wrapped.parameters(), strict=True)] == [True, True]
