"""The examples run as a user runs them, and reach the results they promise."""

import itertools
import os
import re
import runpy
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import minigrad as mg

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLAIM = re.compile(r"claim: (.+)\nsource: (.+)\ncriterion: (.+)\nmeasured: (.+)\nverdict: (\w+)\n")
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="no examples beside these tests")


def start(script, *arguments, folder=None, python=(), ranks=0):
    # if a GPU is emulated, the child process uses the same emulation
    paths = [path for path in sys.path if path.endswith("emulation")] + [os.environ.get("PYTHONPATH", "")]
    found = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    launcher = [shutil.which("mpiexec", path=found), "-n", str(ranks)] if ranks else []
    return subprocess.Popen([*launcher, sys.executable, *python, EXAMPLES / script, *arguments], cwd=folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))})  # fmt: skip


def run(script, *arguments, timeout=None, **how):
    process = start(script, *arguments, **how)
    output, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return output


@pytest.fixture
def run_here(capsys, monkeypatch):
    """Return a function that runs a script in this process, which has imported everything already.

    The function checks what the script exits with, and returns its output and its errors.
    """

    def run_here(script, *arguments, folder, exits=0):
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.setattr(mg.ranks.communicator, "_world", None)  # a script may call init, once
        code = 0
        try:
            runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        except SystemExit as end:
            code = end.code
        output, errors = capsys.readouterr()
        assert code == exits, errors
        return output, errors

    return run_here


@pytest.fixture
def run_on_both(run_here):
    """Return a function that returns the outputs of a script on the CPU and on the GPU."""

    def run_on_both(script, *arguments, folder):
        return [run_here(script, *arguments, "--device", device, folder=folder)[0] for device in ("cpu", "cuda")]

    return run_on_both


@pytest.mark.parametrize("script", sorted({path.name for path in EXAMPLES.glob("*.py")} - {"experiment.py"}))
def test_help_describes_every_option(script, run_here, tmp_path):
    text, _ = run_here(script, "--help", folder=tmp_path)
    options = re.findall(r"^  (--[\w-]+)([^\n]*)(\n {10,}\S)?", text, re.MULTILINE)
    source = (EXAMPLES / script).read_text(encoding="utf-8")
    if "import experiment" in source:
        expected = {"--quick", "--seeds", "--seed", "--device", "--plot"}
        expected |= {f"--{name.replace('_', '-')}" for name in re.findall(r'"(epochs|batch_size)": ', source)}
        assert expected <= {name for name, *_ in options}
    else:
        assert len(options) == source.count("add_argument(")
    for option, rest, continued in options:
        assert continued or re.search(r"  \S", rest), f"{option} says nothing"


def test_digits_reach_their_accuracy(tmp_path):
    """The demo reaches at least 97 % with the LN-MLP and 95 % with the LN-RNN on the held-out fifth."""
    text = run("digits.py", folder=tmp_path)
    accuracy = {name: float(value) for name, value in re.findall(r"^(LN-\w+).* ([\d.]+) %", text, re.MULTILINE)}
    assert accuracy["LN-MLP"] >= 97
    assert accuracy["LN-RNN"] >= 95
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_digits_are_reproducible(tmp_path):
    """Same seed, same machine, same threads: the same numbers."""
    first, second = (run("digits.py", "--epochs", "1", "--plot", "", folder=tmp_path) for _ in range(2))
    assert first == second
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Make small substitutes for MNIST, IMDB with vectors, and a text, in the formats that --data takes."""
    folder, rng = tmp_path_factory.mktemp("sources"), np.random.default_rng(0)
    for split, count in (("train", 48), ("t10k", 24)):
        images = rng.integers(0, 256, (count, 28, 28), np.uint8)
        (folder / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, count, 28, 28) + images.tobytes())
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 2049, count) + bytes(range(8)) * (count // 8)
        )
    words = "a film of some weight and wit that is never dull".split()
    for split, kind, k in itertools.product(("train", "test"), ("neg", "pos"), range(8)):
        path = folder / split / kind / f"{k}_1.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(" ".join(rng.choice(words, 6)), encoding="utf-8")
    numbers = " 0.1" * 100
    (folder / "glove.tiny.100d.txt").write_text(f"film{numbers}\nwit{numbers}\n", encoding="utf-8")
    for name, lines in (("text.txt", 60), ("short.txt", 20)):
        (folder / name).write_text("The quick brown fox jumps over the lazy dog.\n" * lines, encoding="utf-8")
    return folder


SMALL = ("--epochs", "1", "--batch-size", "24")
TINY = {
    "lenet_batch_sizes": ("--epochs", "1", "1", "--batch-size", "24", "8", "--data", "."),
    "mlp_batch_sizes": ("--epochs", "1", "1", "--batch-size", "24", "12", "--data", "."),
    "conv_norms": (*SMALL, "--data", "."),
    "small_batches": ("--epochs", "1", "--batch-size", "24", "12", "--data", "."),
    "online": ("--epochs", "1", "--data", "."),
    "shift_and_saturation": ("--epochs", "6", "--batch-size", "24", "--data", "."),
    "smoothness": (*SMALL, "--data", "."),
    "recurrent_dynamics": ("--batch-size", "2"),
    "long_lag": ("--epochs", "1", "--batch-size", "1", "2", "--lags", "2", "3", "4", "5"),
    "sequence_lengths": (),
    "lstm_names": ("--epochs", "3", "--batch-size", "8", "--data", "."),
    "char_model": ("--epochs", "1", "--data", "text.txt"),
    "char_transformer": ("--epochs", "1", "--data", "text.txt", "--depths", "1", "2", "8"),
}
# the verdicts that need no statistics and are certain in any setting
CERTAIN = {
    "online": {"BN cannot be applied to online learning": "agrees"},
    "small_batches": {
        "accumulated gradients of small batches are those of a large one: BN": "disagrees",
        "accumulated gradients of small batches are those of a large one: LN": "agrees",
        "accumulated gradients of small batches are those of a large one: GN": "agrees",
    },
    "recurrent_dynamics": {
        "in a standard RNN the summed inputs grow or shrink at every step; with LN they are more stable": "agrees",
    },
    "long_lag": {"BN cannot run on sequences longer than those of training": "disagrees"},
    "sequence_lengths": {"at late steps a single sample may be left, too few for BN's statistics": "agrees"},
    "char_transformer": {
        "with pre-LN the initial gradient is well-behaved at any depth": "agrees",
        "without a norm a deep network explodes before training: its loss": "agrees",
    },
}


@pytest.mark.parametrize("name", TINY)
def test_experiment(name, sources, tmp_path):
    """Each prints a table and claims with verdicts, and draws a figure; certain verdicts are checked."""
    text = run(f"{name}.py", "--seeds", "2", *TINY[name], "--plot", str(tmp_path / "figure.png"), folder=sources)
    assert re.search(r"^\| .* \|\n\| -+ \|", text, re.MULTILINE)
    assert "nan" not in text
    claims = {says: verdict for says, *_, verdict in CLAIM.findall(text)}
    assert claims
    assert set(claims.values()) <= {"agrees", "disagrees", "undecided"}
    assert len(CLAIM.findall(text)) == text.count("claim: ")
    assert CERTAIN.get(name, {}).items() <= claims.items()
    height, width, _ = matplotlib.image.imread(tmp_path / "figure.png").shape
    assert min(height, width) > 300


def test_limits_of_batch_renormalization(monkeypatch):
    """Those of BN for 200 steps, then rising to those of the paper at step 400."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import small_batches

    layer, x = small_batches.Renorm(2), mg.random.normal(3.0, 2.0, (4, 2, 3, 3))
    plain = small_batches.AT_FOUR["batch"](2)
    assert layer(x).tolist() == plain(x).tolist()
    assert layer.eval()(x).tolist() == plain.eval()(x).tolist()
    layer.train(), plain.train()
    for count, limits in ((200, (1, 0)), (300, (2, 2.5)), (400, (3, 5)), (1000, (3, 5))):
        layer.num_batches_tracked.fill_(count)
        assert (layer(x).tolist() == plain(x).tolist()) == (count == 200)
        assert (layer.r_max, layer.d_max) == limits


# options that keep each one short on the emulated GPU, where a step of a network takes a second
SMALLER = {
    "lenet_batch_sizes": ("--norm", "layer", "--epochs", "1", "1", "--batch-size", "48", "24"),
    "mlp_batch_sizes": ("--norm", "layer", "--epochs", "1", "1", "--batch-size", "48", "48"),
    "conv_norms": ("--norm", "layer"),
    "small_batches": ("--norm", "layer", "renorm", "--batch-size", "48", "24"),
    "shift_and_saturation": ("--norm", "layer", "--epochs", "3"),
    "long_lag": ("--norm", "layer", "--batch-size", "1", "1", "--lags", "2", "2", "2", "2"),
    "char_model": ("--norm", "layer", "--data", "short.txt"),
    "char_transformer": ("--norm", "pre", "--batch-size", "16", "--data", "short.txt", "--depths", "1", "1", "2"),
}


def numbers(text):
    """Return the numbers of the tables, each with whether its column is a percentage of samples."""
    found, header = [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if line.startswith("| -") or not cells:
            continue
        if all(not re.match(r"-?\d", cell) for cell in cells):
            header = cells
        found += [(float(cell.split()[0]), "%" in title) for title, cell in zip(header, cells, strict=True)
                  if re.match(r"-?\d", cell)]  # fmt: skip
    return found


@pytest.mark.parametrize("name", TINY)
def test_experiment_on_a_gpu(name, run_on_both, sources):
    """The tables equal those on the CPU within rounding, with a sample or two classified differently."""
    options = (*TINY[name], "--seeds", "1", "--plot", "", *SMALLER.get(name, ()))
    here, there = map(numbers, run_on_both(f"{name}.py", *options, folder=sources))
    assert len(here) == len(there) > 0
    for (wanted, percent), (got, _) in zip(here, there, strict=True):
        assert got == pytest.approx(wanted, rel=0.02, abs=200 / 24 if percent else 1e-3)


def test_digits_on_a_gpu(run_on_both, tmp_path):
    options = ("--epochs", "1", "--batch-size", "256", "--hidden", "16", "--plot", "")
    here, there = run_on_both("digits.py", *options, folder=tmp_path)
    assert re.findall(r"[\d.]+ %", here) == re.findall(r"[\d.]+ %", there) != []


def test_experiments_go_on_from_a_checkpoint(sources, tmp_path):
    """One epoch and then resuming to two equals a run of two."""
    options = ("--norm", "batch", "layer", "--seeds", "2", "--batch-size", "8", "--data", ".", "--plot", "")

    def run_epochs(epochs, *more):
        return run("conv_norms.py", "--epochs", epochs, *options, *more, folder=sources)

    folder = str(tmp_path / "runs")
    first = run_epochs("1", "--checkpoint", folder)
    assert len(list((tmp_path / "runs").glob("conv_norms-*.safetensors"))) == 4
    assert first != run_epochs("2", "--checkpoint", folder) == run_epochs("2")
    process = start("conv_norms.py", "--epochs", "1", *options, "--checkpoint", folder, folder=sources)
    assert "[train] expected a run of at most 1 epochs at" in process.communicate()[1]
    assert process.returncode == 1


# Runs a script in a process that sends itself a signal once its 17th epoch is saved
INTERRUPTED = """
import os, runpy, signal, sys
import minigrad as mg

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
_, kind, *sys.argv = sys.argv
save, saved = mg.save_checkpoint, []

def save_and_stop(path, **parts):
    save(path, **parts)
    saved.append(path)
    if len(saved) == 17:
        os.kill(os.getpid(), int(kind))

mg.save_checkpoint = save_and_stop
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_an_experiment_that_is_killed_goes_on_to_the_same_numbers(kind, sources, tmp_path):
    """With probes, BN's statistics and several seeds, it is killed in its second run and then resumed to the end."""
    options = ("--norm", "batch", "layer", "--seeds", "2", "--epochs", "12", "--batch-size", "8", "--data", ".")
    whole = run("smoothness.py", *options, "--plot", str(tmp_path / "whole.png"), folder=sources)
    folder = tmp_path / "runs"
    options = (*options, "--checkpoint", str(folder), "--plot", str(tmp_path / "parts.png"))
    process = start("smoothness.py", *options, folder=sources, python=("-c", INTERRUPTED, str(int(kind))))
    errors = process.communicate()[1]
    assert process.returncode == -kind, errors
    done, half = sorted(folder.glob("*.safetensors"), key=os.path.getmtime)
    written = os.path.getmtime(done)
    assert run("smoothness.py", *options, folder=sources) == whole
    assert os.path.getmtime(done) == written < os.path.getmtime(half)
    assert (tmp_path / "parts.png").read_bytes() == (tmp_path / "whole.png").read_bytes()


@pytest.mark.parametrize("script, option, message", [
    ("online", ("--epochs", "0"), "--epochs: expected 1 or more, got 0"), ("online", ("--seeds", "0"), "--seeds: expected 1 or more, got 0"),
    ("mlp_batch_sizes", ("--batch-size", "8"), "--batch-size: expected 2 numbers, got 8"), ("long_lag", ("--seed", "-1"), "--seed: expected 0 or more, got -1"),
    ("char_model", ("--data", "absent.txt"), "--data: expected a text file, got nothing at absent.txt"),
    ("sequence_lengths", ("--plot", "absent/figure.png"), "--plot: expected a file in an existing folder, got absent/figure.png"),
    ("recurrent_dynamics", ("--device", "tpu"), "--device: .*expected the device .* got 'tpu'"),
    *(("report", ("--only", "online", *folder), "--only: this would overwrite the page of all experiments; pass another --folder")
      for folder in ((), ("--folder", str(EXAMPLES / ".." / "examples" / "results")))),
])  # fmt: skip
def test_options_that_would_stop_a_run(script, option, message, run_here, tmp_path):
    """The error is reported immediately, in one line."""
    _, errors = run_here(f"{script}.py", *option, folder=tmp_path, exits=2)
    assert re.search(rf"{script}.py: error: argument {message}\n$", errors)


def test_report(tmp_path):
    """The page contains the verdicts and figures of the experiments that ran; the committed page contains all."""
    run("report.py", "--quick", "--only", "sequence_lengths", "recurrent_dynamics", "--folder", str(tmp_path))
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert text.count("**agrees**") >= 2
    assert {path.name for path in tmp_path.glob("*.png")} == set(re.findall(r"\]\((\w+\.png)\)", text))
    committed = (EXAMPLES / "results" / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in (EXAMPLES / "results").glob("*.png")} == set(TINY) == set(
        re.findall(r"^## (\w+)", committed, re.MULTILINE))  # fmt: skip


def test_report_by_several_processes(tmp_path):
    """Other processes train the seeds of the experiments; the page and the figures are the same."""
    folders = tmp_path / "alone", tmp_path / "together"
    options = "report.py", "--quick", "--only", "online", "sequence_lengths", "--folder"
    run(*options, str(folders[0]))
    run(*options, str(folders[1]), ranks=3, python=("-m", "mpi4py.futures"), timeout=300)
    texts = [(folder / "README.md").read_text(encoding="utf-8") for folder in folders]
    assert len({re.sub(r", \d+ s\.\n", "\n", text) for text in texts}) == 1
    for name in ("online.png", "sequence_lengths.png"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1
    assert {path.name for path in folders[1].iterdir()} == {"README.md", "online.png", "sequence_lengths.png"}


def test_digits_on_several_processes(tmp_path):
    """The accuracy of one process within an image or two; only one rank prints."""
    options = "digits.py", "--epochs", "1", "--models", "LN-MLP", "--plot", ""
    texts = [run(*options, folder=tmp_path, ranks=ranks, timeout=100) for ranks in (0, 4)]
    alone, together = (float(re.search(r"([\d.]+) %", text)[1]) for text in texts)
    assert together == pytest.approx(alone, abs=1)
    assert texts[1].count("accuracy") == 1


def test_verdicts():
    """The paired test decides on clear differences, not on noise or a single seed."""
    code = (
        "import numpy as np, experiment as ex\n"
        "nan, inf = np.nan, np.inf\n"
        "for low, high in (([1, 2, 3], [2, 3.1, 4]), ([2, 3.1, 4], [1, 2, 3]), ([1, 2, 3], [2, 1, 3.5]), ([1], [9]),\n"
        "                  ([1, 2, 3], [nan, inf, nan]), ([nan, inf, nan], [1, 2, 3]), ([1, 2, 3], [2, nan, nan])):\n"
        "    ex.compare('says', 'source', 'loss', LN=np.array(low, float), no_norm=np.array(high, float))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert [claim[-1] for claim in CLAIM.findall(done.stdout)] == [
        "agrees", "disagrees", "undecided", "undecided", "agrees", "disagrees", "undecided",
    ]  # fmt: skip
    assert "measured: LN 2 ± 1, no norm 3 of 3 not finite\n" in done.stdout
    assert "measured: LN 2 ± 1, no norm 2, 2 of 3 not finite\n" in done.stdout
    assert "criterion: loss: LN < no norm" in done.stdout
