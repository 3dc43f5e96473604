"""Measure one epoch, from arrays on disk to the last step, with each library's own loader; print a Markdown table.

  mlp      59,904 images in 468 shuffled batches of 128, 784-256-256-10, LayerNorm then ReLU after both hidden layers
  lenet    the same images, the LeNet of workloads.py
  lnlstm   4,096 sequences of 8 to 80 words in 128 shuffled batches of 32, the LN-LSTM of workloads.py with lengths

The images are uint8 on disk, and each batch becomes float32 from 0 to 1. Every library begins with the same parameters
and takes Adam's steps (lr 1e-3), in its own order, so that the mean losses of the epoch are close. A process runs the
epoch twice: the first time includes compilation. Rounds alternate the libraries; the second times count, by their
median.

  minigrad-medium  minigrad with products of factors rounded to bfloat16, set_float32_matmul_precision("medium")
  torch            DataLoader over a TensorDataset, sample by sample, as in most programs
  torch-batched    DataLoader over a BatchSampler, which takes the batch from the tensors at once; the fastest loader
  torch-workers    the same from two worker processes
  torch-compiled   torch-batched with the loss (for lnlstm, a step of the layer) under torch.compile
  keras            fit on JAX, with --executions batches in each of its steps; the LN-LSTM is a cell of its RNN, masked
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from compare import cpu_name, shown, versions
from measure import hold_to

HERE = Path(__file__).resolve().parent
JOBS = {"mlp": 128, "lenet": 128, "lnlstm": 32}  # and their batch sizes
OURS = ("minigrad", "minigrad-medium")
PEERS = ("torch", "torch-batched", "torch-workers", "torch-compiled", "keras")
WORDS, STEPS = 20000, 80


def write_arrays(folder, job, batches):
    """Write x and y, and the lengths of sequences: classes that a network can learn, with noise."""
    rng, n = np.random.default_rng(0), batches * JOBS[job]
    y = rng.integers(0, 2 if job == "lnlstm" else 10, n)
    if job == "lnlstm":
        lengths = rng.integers(8, STEPS + 1, n)
        common = rng.random((n, STEPS)) < 0.3 + 0.4 * y[:, None]  # each class prefers one half of 200 words
        x = rng.integers(1, 101, (n, STEPS)) + 100 * common
        x[np.arange(STEPS) >= lengths[:, None]] = 0
        np.save(folder / "lengths.npy", lengths)
        y = y.astype(np.float32)
    else:
        x = rng.integers(0, 256, (10, 784)).astype(np.uint8)[y] // 4 + rng.integers(0, 192, (n, 784), dtype=np.uint8)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


def read_arrays(folder, job):
    """Return the images or the words and lengths, then the labels."""
    x, y = np.load(folder / "x.npy", mmap_mode="c"), np.load(folder / "y.npy")
    if job == "lnlstm":
        return x, np.load(folder / "lengths.npy"), y
    return (x.reshape(-1, 1, 28, 28) if job == "lenet" else x), y


def network(nn, job):
    """Return an MLP or LeNet of minigrad's or PyTorch's layers."""
    if job == "mlp":
        layers = [nn.Linear(784, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(256, 10))
    layers = [nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(256, 120), nn.Tanh(), nn.LayerNorm(120)]
    return nn.Sequential(*layers, nn.Linear(120, 84), nn.Tanh(), nn.LayerNorm(84), nn.Linear(84, 10))


def minigrad_epoch(job, threads, precision):
    """Return a function of the folder that runs an epoch and returns the mean loss."""
    import minigrad as mg
    from minigrad import nn, optim
    from minigrad.nn import functional as F

    mg.set_num_threads(threads)
    mg.set_float32_matmul_precision(precision)

    class LNLSTM(nn.Module):
        """The state after the last word of a sequence as one logit."""

        def __init__(self):
            super().__init__()
            self.words, self.lstm = nn.Embedding(WORDS, 100), nn.LSTM(100, 128, norm="layer", batch_first=True)
            self.out = nn.Linear(128, 1)

        def forward(self, x, lengths):
            return self.out(self.lstm(self.words(x), lengths=lengths)[1][0][0]).reshape(-1)

    loss_of = F.binary_cross_entropy_with_logits if job == "lnlstm" else F.cross_entropy

    def epoch(folder):
        mg.manual_seed(0)
        model = LNLSTM() if job == "lnlstm" else network(nn, job)
        start = folder / "start.npz"
        if not start.exists():
            np.savez(start, **{f"p{i:02}": p.detach().numpy() for i, p in enumerate(model.parameters())})
        optimizer = optim.Adam(model.parameters(), 1e-3)
        dataset = mg.data.ArrayDataset(*read_arrays(folder, job))
        loader = mg.data.DataLoader(dataset, JOBS[job], shuffle=True)
        total = 0.0
        for *x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(*x) if job == "lnlstm" else model(x[0].astype("float32") / 255), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total / len(loader)

    return epoch


def torch_epoch(job, threads, way):
    """Return the same in PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    torch.set_num_threads(threads)

    class LNLSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.xh = nn.Embedding(WORDS, 100), nn.Linear(100, 512)
            self.hh = nn.Linear(128, 512, bias=False)
            self.lx, self.lh, self.lc, self.out = (
                nn.LayerNorm(512), nn.LayerNorm(512), nn.LayerNorm(128), nn.Linear(128, 1),
            )  # fmt: skip
            self.cell = torch.compile(self.step) if way == "compiled" else self.step

        def parameters(self):  # in minigrad's order
            of = self.words, self.xh, self.hh, self.lx, self.lh, self.lc, self.out
            found = {id(module): list(nn.Module.parameters(module)) for module in of}
            (weight, bias), rest = found[id(self.xh)], [p for module in of[2:] for p in found[id(module)]]
            return [*found[id(self.words)], weight, rest[0], bias, *rest[1:]]

        def step(self, x, h, c, alive):
            i, f, g, o = (x + self.lh(self.hh(h))).chunk(4, 1)
            new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(self.lc(new))
            return torch.where(alive, state, h), torch.where(alive, new, c)

        def forward(self, x, lengths):
            x = x[:, : int(lengths.max())].T
            xs = (
                F.layer_norm(F.linear(self.words(x), self.xh.weight), (512,), self.lx.weight, self.lx.bias)
                + self.xh.bias
            )
            alive = (torch.arange(len(x))[:, None] < lengths)[:, :, None]
            h = c = xs.new_zeros(x.shape[1], 128)
            for t in range(len(x)):
                h, c = self.cell(xs[t], h, c, alive[t])
            return self.out(h).flatten()

    loss_of = F.binary_cross_entropy_with_logits if job == "lnlstm" else F.cross_entropy
    model = LNLSTM() if job == "lnlstm" else network(nn, job)

    def loss(*arrays):
        *x, y = arrays
        return loss_of(model(*x) if job == "lnlstm" else model(x[0].float() / 255), y)

    if way == "compiled" and job != "lnlstm":
        loss = torch.compile(loss)

    def epoch(folder):
        with torch.no_grad(), np.load(folder / "start.npz") as start:
            for p, name in zip(model.parameters(), start, strict=True):
                p.copy_(torch.from_numpy(start[name]))
        optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        dataset = TensorDataset(*map(torch.from_numpy, read_arrays(folder, job)))
        if way:
            batches = BatchSampler(RandomSampler(dataset), JOBS[job], False)
            loader = DataLoader(dataset, batch_size=None, sampler=batches, num_workers=2 * (way == "workers"))
        else:
            loader = DataLoader(dataset, JOBS[job], shuffle=True)
        total = 0.0
        for arrays in loader:
            optimizer.zero_grad()
            value = loss(*arrays)
            value.backward()
            optimizer.step()
            total += value.item()
        return total / len(loader)

    return epoch


def keras_epoch(job, executions):
    """Return the same in Keras."""
    os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    import keras
    from keras import layers, ops

    keras.utils.set_random_seed(0)

    def norm():
        return layers.LayerNormalization(epsilon=1e-5)

    class Cell(layers.Layer):
        """A step of the LN-LSTM on a projected and normalized input."""

        def __init__(self):
            super().__init__()
            self.state_size, self.output_size, self.lh, self.lc = [128, 128], 128, norm(), norm()

        def build(self, shape):
            self.weight, self.bias = (
                self.add_weight(shape=size, name=f"p{len(size)}") for size in ((128, 512), (512,))
            )
            self.lh.build((None, 512))
            self.lc.build((None, 128))

        def call(self, x, states):
            h, c = states
            i, f, g, o = ops.split(x + self.bias + self.lh(ops.matmul(h, self.weight)), 4, axis=-1)
            c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
            h = ops.sigmoid(o) * ops.tanh(self.lc(c))
            return h, [h, c]

    def places(arrays):
        """Return the parameters in Keras's order and layouts."""
        if job == "lnlstm":
            words, weight, recurrent, bias, gamma, beta, *norms, out, last = arrays
            return [words, weight.T, gamma, beta, recurrent.T, bias, *norms, out.T, last]
        found = [a.transpose(2, 3, 1, 0) if a.ndim == 4 else a.T for a in arrays]
        if job == "lenet":  # Flatten takes the channels last
            found[4] = arrays[4].reshape(120, 16, 4, 4).transpose(2, 3, 1, 0).reshape(256, 120)
        return found

    if job == "lnlstm":
        made = [layers.Embedding(WORDS, 100, mask_zero=True), layers.Dense(512, use_bias=False), norm()]
        made += [layers.RNN(Cell()), layers.Dense(1), layers.Flatten()]
        shape, kind, loss = (STEPS,), "int32", keras.losses.BinaryCrossentropy(from_logits=True)
    else:
        made = [layers.Dense(256), norm(), layers.ReLU(), layers.Dense(256), norm(), layers.ReLU(), layers.Dense(10)]
        if job == "lenet":
            made = [layers.Conv2D(6, 5, activation="tanh"), layers.MaxPooling2D(2)]
            made += [layers.Conv2D(16, 5, activation="tanh"), layers.MaxPooling2D(2), layers.Flatten()]
            made += [layers.Dense(120, "tanh"), norm(), layers.Dense(84, "tanh"), norm(), layers.Dense(10)]
        made.insert(0, layers.Rescaling(1 / 255))
        shape, kind = ((28, 28, 1) if job == "lenet" else (784,)), "uint8"
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = keras.Sequential([keras.Input(shape, dtype=kind), *made])

    def compile_it():
        adam = keras.optimizers.Adam(1e-3, epsilon=1e-8)
        model.compile(optimizer=adam, loss=loss, steps_per_execution=executions)

    compile_it()

    def epoch(folder):
        with np.load(folder / "start.npz") as start:
            model.set_weights(places([start[name] for name in start]))
        for variable in model.optimizer.variables[2:]:  # the moments, after the count of steps and the rate
            variable.assign(np.zeros(variable.shape))
        model.optimizer.iterations.assign(0)
        x, *_, y = read_arrays(folder, job)
        x = x.reshape(-1, *shape) if job != "lnlstm" else x.astype(np.int32)
        return model.fit(x, y, batch_size=JOBS[job], shuffle=True, verbose=0).history["loss"][0]

    return epoch


def measure(framework, job, args):
    """Return the loss, and the seconds of the first and of the second epoch."""
    hold_to(args.threads)
    folder = Path(args.folder)
    if framework in OURS:
        epoch = minigrad_epoch(job, args.threads, "highest" if framework == "minigrad" else "medium")
    elif framework == "keras":
        epoch = keras_epoch(job, args.executions)
    else:
        epoch = torch_epoch(job, args.threads, framework.partition("-")[2])
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        loss = epoch(folder)
        seconds.append(round(time.perf_counter() - start, 3))
    return {"loss": round(float(loss), 4), "first_s": seconds[0], "s": seconds[1]}


def table(results):
    """Return the Markdown table of the results."""
    lines = ["| seconds of an epoch | " + " | ".join(results["frameworks"]) + " | ÷ best peer |"]
    lines.append("| --- |" + " ---: |" * (len(results["frameworks"]) + 1))
    for job, row in results["epochs"].items():
        times = {name: statistics.median(each["s"] for each in runs) for name, runs in row.items() if runs}
        peers = [s for name, s in times.items() if name not in OURS]
        ratio = ", ".join(f"**{times[name] / min(peers):.2g}**" for name in OURS if peers and name in times)
        cells = [
            f"{shown(times[f])} (loss {row[f][0]['loss']:.3f})" if f in times else "" for f in results["frameworks"]
        ]
        lines.append(f"| {job} | " + " | ".join(cells) + f" | {ratio} |")
    found = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    caption = (
        f"{results['cpu']}, {results['threads']} threads, float32; {found}, Python {results['python']}. The last "
        "column divides the times of minigrad and of minigrad-medium by the time of the fastest peer."
    )
    return "\n".join(lines) + f"\n\n{caption}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME", help="(default: all)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, metavar="NAME", help="(default: all)")
    parser.add_argument("--threads", type=int, default=2, help="threads and cores for each (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="processes per framework (default: %(default)s)")
    parser.add_argument("--batches", type=int, help="in an epoch (default: 468, of sequences 128)")
    parser.add_argument("--executions", type=int, default=4, help="Keras's steps_per_execution (default: %(default)s)")
    parser.add_argument("--output", metavar="NAME", help="write results/NAME.json and results/NAME.md")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # for the child processes: framework and job
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one, args)))
        return
    frameworks = [*OURS, *args.peers]  # whose first epoch writes the parameters that all begin with
    epochs = {job: {framework: [] for framework in frameworks} for job in args.jobs}
    missing = {}
    with tempfile.TemporaryDirectory() as top:
        for job in args.jobs:
            folder = Path(top, job)
            folder.mkdir()
            write_arrays(folder, job, args.batches or (128 if job == "lnlstm" else 468))
        for _ in range(args.rounds):
            for job, row in epochs.items():
                for framework in frameworks:
                    if framework in missing:
                        continue
                    command = [sys.executable, __file__, "--one", framework, job, "--folder", str(Path(top, job))]
                    command += ["--threads", str(args.threads), "--executions", str(args.executions)]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if "ModuleNotFoundError" in done.stderr and framework not in OURS:
                        missing[framework] = done.stderr.splitlines()[-1]
                        continue
                    if done.returncode:
                        sys.exit(f"{framework} failed on {job}:\n{done.stderr}")
                    row[framework].append(json.loads(done.stdout.splitlines()[-1]))
                    print(job, framework, row[framework][-1], file=sys.stderr)
    results = {
        "cpu": cpu_name(), "threads": args.threads, "date": datetime.date.today().isoformat(),
        "python": platform.python_version(), "versions": versions(["minigrad", "torch", "jax", "keras"]),
        "frameworks": [name for name in frameworks if name not in missing], "epochs": epochs,
    }  # fmt: skip
    text = table(results)
    print(text)
    for framework, reason in missing.items():
        print(f"not measured: {framework}: {reason}")
    if args.output:
        (HERE / "results" / f"{args.output}.json").write_text(json.dumps(results, indent=1) + "\n")
        (HERE / "results" / f"{args.output}.md").write_text(text)


if __name__ == "__main__":
    main()
