"""Compare single operations with PyTorch's, forward and backward, in alternating processes; print a Markdown table.

A training step can hide a slow operation, so each is measured alone. Every round runs each framework once, in a
separate process that measures all operations. A time is the median over the rounds of the median call.
"""

import argparse
import json
import statistics
import subprocess
import sys

from measure import hold_to, times_of

SHAPES = ((32, 256), (2048, 1024))


def attention(F, x, y, parts, width, causal=False, queries=None):
    """Attention of heads of `width` over a length of 1/parts of the rows of x; of the first `queries` if given."""
    q, k = (z.reshape(1, -1, len(z) // parts, width) for z in (x, y))
    return F.scaled_dot_product_attention(q[:, :, :queries], k, k, is_causal=causal)


# Name -> (operands, minigrad's function, PyTorch's if it differs). The first argument is the module of operations, the
# second nn.functional. x, y: matrices of positive numbers; s: of both
# signs; r, c: a row and a column; m: bools; i: a column index for each row of x.
OPS = {
    "add": ("xy", lambda m, F, x, y: x + y),
    "add a row": ("xr", lambda m, F, x, r: x + r),
    "add a column": ("xc", lambda m, F, x, c: x + c),
    "multiply": ("xy", lambda m, F, x, y: x * y),
    "multiply by a row": ("xr", lambda m, F, x, r: x * r),
    "divide": ("xy", lambda m, F, x, y: x / y),
    "x ** 2": ("x", lambda m, F, x: x**2),
    "x ** 3": ("x", lambda m, F, x: x**3),
    "x ** 1.7": ("x", lambda m, F, x: x**1.7),
    "sqrt": ("x", lambda m, F, x: m.sqrt(x)),
    "exp": ("x", lambda m, F, x: m.exp(x)),
    "log": ("x", lambda m, F, x: m.log(x)),
    "sin": ("x", lambda m, F, x: m.sin(x)),
    "abs": ("s", lambda m, F, x: m.abs(x)),
    "maximum": ("xy", lambda m, F, x, y: m.maximum(x, y)),
    "clip": ("x", lambda m, F, x: m.clip(x, 0.2, 0.8)),
    "where": ("mxy", lambda m, F, mask, x, y: m.where(mask, x, y)),
    "relu": ("s", lambda m, F, x: F.relu(x)),
    "leaky_relu": ("s", lambda m, F, x: F.leaky_relu(x)),
    "elu": ("s", lambda m, F, x: F.elu(x)),
    "gelu": ("s", lambda m, F, x: F.gelu(x)),
    "silu": ("s", lambda m, F, x: F.silu(x)),
    "softplus": ("s", lambda m, F, x: F.softplus(x)),
    "tanh": ("s", lambda m, F, x: m.tanh(x)),
    "sigmoid": ("s", lambda m, F, x: m.sigmoid(x)),
    "dropout": ("x", lambda m, F, x: F.dropout(x, 0.5)),
    "sum": ("x", lambda m, F, x: x.sum()),
    "sum of columns": ("x", lambda m, F, x: x.sum(0)),
    "sum of rows": ("x", lambda m, F, x: x.sum(1)),
    "max of rows": ("x", lambda m, F, x: x.max(1), lambda m, F, x: x.amax(1)),
    "var of rows": ("x", lambda m, F, x: x.var(1), lambda m, F, x: x.var(1, correction=0)),
    "var of columns": ("x", lambda m, F, x: x.var(0), lambda m, F, x: x.var(0, correction=0)),
    "product of columns": ("x", lambda m, F, x: x.prod(0)),
    "product of rows": ("x", lambda m, F, x: x.prod(1)),
    "median of rows": ("x", lambda m, F, x: m.median(x, 1), lambda m, F, x: x.median(1)[0]),
    "logsumexp": ("x", lambda m, F, x: m.logsumexp(x, 1)),
    "cumulative sum": ("x", lambda m, F, x: m.cumulative_sum(x, axis=1), lambda m, F, x: x.cumsum(1)),
    "softmax": ("x", lambda m, F, x: F.softmax(x, -1)),
    "softmax of columns": ("x", lambda m, F, x: F.softmax(x, 0)),
    "log_softmax": ("x", lambda m, F, x: F.log_softmax(x, -1)),
    "cross_entropy": ("xi", lambda m, F, x, i: F.cross_entropy(x, i)),
    "mse_loss": ("xy", lambda m, F, x, y: F.mse_loss(x, y)),
    "smooth_l1_loss": ("xy", lambda m, F, x, y: F.smooth_l1_loss(x, y)),
    "layer_norm": ("xr", lambda m, F, x, r: F.layer_norm(x, x.shape[1:], r)),
    "concat": ("xy", lambda m, F, x, y: m.concat([x, y])),
    "stack": ("xy", lambda m, F, x, y: m.stack([x, y])),
    "pad by reflection": ("x", lambda m, F, x: F.pad(x, (2, 2), mode="reflect")),
    "slice": ("x", lambda m, F, x: x[1:-1, 1:]),
    "rows by index": ("xi", lambda m, F, x, i: x[i % x.shape[0]]),
    "mask": ("mx", lambda m, F, mask, x: x[mask]),
    "copy of the transpose": ("x", lambda m, F, x: x.T.copy(), lambda m, F, x: x.T.contiguous()),
    "conv2d of width 1": (
        "xy",
        lambda m, F, x, y: F.conv2d(x.reshape(-1, 4, x.shape[1] // 4, 1), y[:16, :32].reshape(16, 4, 8, 1)),
    ),
    "matmul": ("xy", lambda m, F, x, y: x @ y[:256].T),
    "attention": ("xy", lambda m, F, x, y: attention(F, x, y, 4, 64)),
    "causal attention": ("xy", lambda m, F, x, y: attention(F, x, y, 16, 32, causal=True)),
    "attention of one query": ("xy", lambda m, F, x, y: attention(F, x, y, 4, 64, queries=1)),
}


def operands(shape):
    """Return the operands by letter, as NumPy arrays."""
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = (0.1 + rng.random(shape, dtype=np.float32) for _ in range(2))
    row, column, index = y[0].copy(), y[:, :1].copy(), rng.integers(0, shape[1], shape[0])
    return {"x": x, "y": y, "s": 4 * x - 2, "r": row, "c": column, "m": x > 0.6, "i": index}


def measure(framework, shape, names, threads, seconds):
    """Return {name: [milliseconds of forward, of forward and backward]}."""
    hold_to(threads)
    if framework == "minigrad":
        import minigrad as module

        functional, make, grad = module.nn.functional, module.tensor, module.grad
    else:
        import torch as module

        module.set_num_threads(threads)
        functional, make, grad = module.nn.functional, module.from_numpy, module.autograd.grad
    arrays, found = operands(shape), {}
    for name in names:
        letters, *functions = OPS[name]
        function = functions[0 if framework == "minigrad" else -1]
        inputs = [make(arrays[letter]) for letter in letters]

        def forward(function=function, inputs=inputs):
            return function(module, functional, *inputs)

        with module.no_grad():
            times = [statistics.median(times_of(forward, seconds))]
        wanted = [x.requires_grad_() for x, letter in zip(inputs, letters, strict=True) if letter in "xysrc"]
        g = module.ones_like(forward().detach()) * 0.7

        def both(forward=forward, wanted=wanted, g=g):
            return grad(forward(), wanted, g)

        found[name] = [*times, statistics.median(times_of(both, seconds))]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS), metavar="NAME", help="default: all")
    parser.add_argument("--threads", type=int, default=2, help="of both frameworks (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="processes per framework (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.05, help="per measurement (default: %(default)s)")
    parser.add_argument("--one", nargs=3, metavar=("NAME", "ROWS", "COLUMNS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, *shape = args.one
        print(json.dumps(measure(name, tuple(map(int, shape)), args.ops, args.threads, args.seconds)))
        return
    for shape in SHAPES:
        runs = {"minigrad": [], "torch": []}
        for _ in range(args.rounds):
            for framework, found in runs.items():
                command = [sys.executable, *sys.argv, "--one", framework, *map(str, shape)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
                if done.returncode:
                    sys.exit(f"{framework} failed")
                found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"| µs at {shape} | minigrad | PyTorch | ÷ | forward and backward | PyTorch | ÷ |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name in args.ops:
            ours, theirs = ([statistics.median(run[name][k] for run in found) * 1e3 for k in (0, 1)]
                            for found in runs.values())  # fmt: skip
            cells = [f"{a:.3g} | {b:.3g} | {a / b:.2f}" for a, b in zip(ours, theirs, strict=True)]
            print(f"| {name} | {' | '.join(cells)} |")
        print()


if __name__ == "__main__":
    main()
