"""The workloads, defined once, and minigrad's version of them.

float32 throughout; a step is zero_grad, forward, mean loss, backward, Adam with lr 1e-3. B is the batch size.

  chain          v = a; 500 x (v = v*a; v = v+a), a of shape (4, 4); forward and backward of v.sum()
  tiny_bB        4-32-2, LayerNorm then tanh after the hidden layer, mean squared error
  mlp256_bB      784-256-256-10, LayerNorm then ReLU after both hidden layers, cross-entropy
  mlp1000_bB     the same with 1000 hidden units
  lenet_bB       conv6@5x5 tanh pool2 conv16@5x5 tanh pool2 flatten 120 tanh LN 84 tanh LN 10 on (B, 1, 28, 28)
  lnrnn_bB       h = tanh(LN(W_xh x + W_hh h)), T=28, 28 -> 128, last h -> 10, cross-entropy
  lnlstm_bB      Embedding(20000, 100) -> LN-LSTM(128) over T=80 -> 1, binary cross-entropy
                 (LN on Wx, on Uh and on c inside the output tanh); with _hH, LN-LSTM(H)
  lstm_bB        a plain LSTM(100, 128) over T=80: forward, and backward to the input and all weights; no optimizer;
                 with _hH, LSTM(100, H)
  mingru_bB      MinGRU over T=256, 28 -> 128, last h -> 10, cross-entropy
  gpt_bB         a character GPT: 96 tokens, T=128, learned positions, 4 pre-LN blocks of width 128 (4 heads, causal;
                 512 with GELU), a last LayerNorm, logits; cross-entropy at every position
  attn_bB        causal attention alone, q, k and v of (B, 4, 512, 32): forward and backward; no optimizer
  NORM_fwd, NORM_bwd   one normalization on (4096, 768), affine; with _bB on (B, 256), with _MxN on (M, N). NORM is ln
                       (layer_norm), rms (rms_norm), bn (batch_norm, in training) or softmax;
                       or in4 (instance_norm), gn4 (group_norm, 8 groups) or bn4 on (B, 64, 28, 28), B = 32 by default
  OP_fwd, OP_bwd       the same of OP: copy, relu, add (of another array), row (adds a row), number (adds a number),
                       transpose (a contiguous copy of the transpose) or sum (over the columns)
"""

import re
from typing import NamedTuple

import numpy as np

KINDS = ("chain", "tiny", "mlp256", "mlp1000", "lenet", "lnrnn", "lnlstm", "lstm", "mingru", "gpt", "attn")
MATRIX_OPS = ("copy", "relu", "add", "row", "number", "transpose", "sum")
# how many of x, gain and bias there are, if not all
LEAVES = {"rms": 2, "softmax": 1, **dict.fromkeys(MATRIX_OPS, 1), "row": 2}
NORMS = ("ln", "rms", "bn", "softmax", "gn4", "in4", "bn4")


class Unavailable(Exception):
    """This framework has no version of the workload; the message says why."""


class Workload(NamedTuple):
    """A workload's kind, its batch size (0 if it has none), its hidden units or columns, and its device."""

    kind: str
    batch: int
    hidden: int
    device: str = "cpu"


def parse(name, device="cpu"):
    """Return the workload of a name such as mlp256_b128 or ln_fwd_32768x1024, on "cpu" or "cuda"."""
    return _parse(name)._replace(device=device)


def _parse(name):
    matrix = re.fullmatch(r"(\w+_(?:fwd|bwd))_(\d+)x(\d+)", name)
    if matrix and is_single(matrix[1]) and not matrix[1].split("_")[0].endswith("4"):
        return Workload(matrix[1], int(matrix[2]), int(matrix[3]))
    sized = re.fullmatch(r"(\w+?)_b(\d+)(?:_h(\d+))?", name)
    kind, batch = (sized[1], int(sized[2])) if sized else (name, 0)
    if is_single(kind):
        return Workload(kind, batch or (32 if "4_" in kind else 4096), 256 if batch else 768)
    hidden = sized and sized[3]
    if kind not in KINDS or (kind != "chain") != bool(batch) or (hidden and not kind.endswith("lstm")):
        raise ValueError(
            f"no workload {name!r}; choose chain; with a batch size B, "
            + ", ".join(f"{kind}_bB" for kind in KINDS if kind != "chain")
            + "; or with or without one, "
            + ", ".join(f"{op}_fwd, {op}_bwd" for op in NORMS + MATRIX_OPS)
        )
    return Workload(kind, batch, int(hidden or {"mlp1000": 1000, "mlp256": 256}.get(kind, 128)))


def is_single(kind):
    """Whether a kind is one normalization or operation, forward (_fwd) or backward (_bwd)."""
    op, _, way = kind.partition("_")
    return op in NORMS + MATRIX_OPS and way in ("fwd", "bwd")


def norm_shapes(work):
    """Return the shapes of x and of each parameter of a normalization."""
    if work.kind.split("_")[0].endswith("4"):
        return (work.batch, 64, 28, 28), (64,)
    return (work.batch, work.hidden), (work.hidden,)


def inputs(work):
    """Return x and y of the workload as NumPy arrays, the same for every framework."""
    rng = np.random.default_rng(0)
    if work.kind.startswith("mlp"):
        return rng.standard_normal((work.batch, 784), dtype=np.float32), rng.integers(0, 10, work.batch)
    if work.kind == "tiny":
        return tuple(rng.standard_normal((work.batch, n), dtype=np.float32) for n in (4, 2))
    if work.kind == "lenet":
        return rng.standard_normal((work.batch, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, work.batch)
    if work.kind == "lnrnn":
        return rng.standard_normal((28, work.batch, 28), dtype=np.float32), rng.integers(0, 10, work.batch)
    if work.kind == "mingru":
        return rng.standard_normal((256, work.batch, 28), dtype=np.float32), rng.integers(0, 10, work.batch)
    if work.kind == "gpt":
        tokens = rng.integers(0, 96, (work.batch, 129))
        return tokens[:, :-1], tokens[:, 1:]
    if work.kind == "lnlstm":
        return rng.integers(0, 20000, (80, work.batch)), rng.integers(0, 2, work.batch)
    if work.kind == "lstm":
        return rng.standard_normal((80, work.batch, 100), dtype=np.float32), None
    if work.kind == "attn":
        return rng.standard_normal((3, work.batch, 4, 512, 32), dtype=np.float32), None
    if is_single(work.kind):
        return rng.standard_normal(norm_shapes(work)[0], dtype=np.float32), None
    return None, None


def floor(work):
    """Return the MiB that no step does without, or None for single operations and networks that need next to none.

    A step holds its input and what each layer's derivative needs, and then the gradients of the largest layer's input
    and output; or, when backward ends, the gradients of all parameters. Adam's two moments are always there.
    """
    b, h, kind = work.batch, work.hidden, work.kind
    steps = {"lnrnn": 28, "lnlstm": 80, "lstm": 80, "mingru": 256, "gpt": 128}.get(kind, 1) * b
    block = 12 * 128 * 128 + 13 * 128  # parameters of a block of the GPT
    needs = {  # parameters; numbers that the derivatives need, and numbers of the largest gradients, of a row
        "mlp256": (h * h + 801 * h + 10, 784 + 4 * h, 2 * h),
        "mlp1000": (h * h + 801 * h + 10, 784 + 4 * h, 2 * h),
        "lenet": (44834, 784 + 3456 + 864 + 1024 + 256 + 4 * 102, 3456 + 864),
        "lnrnn": (h * h + 40 * h + 10, 28 + 3 * h, 2 * h),
        "lnlstm": (2_000_000 + 4 * h * h + 423 * h + 1, 102 + 14 * h, 8 * h),
        "lstm": (4 * h * h + 408 * h, 100 + 6 * h, 100 + 5 * h),
        "mingru": (68 * h + 10, 28 + 3 * h, 3 * h),
        "gpt": (4 * block + (96 + 128 + 2 + 96) * 128 + 96, 4 * (8 * 128 + 2 * 512) + 2 * 128 + 96, 512 + 2 * 128),
        "attn": (0, 4 * 512 * 32 * 5, 4 * 512 * 32 * 3),
    }.get(kind)
    if needs is None:
        return None
    parameters, kept, gradients = needs
    moments = 0 if kind in ("lstm", "attn") else 2
    most = max((1 + moments) * parameters + steps * (kept + gradients), (2 + moments) * parameters)
    return round(4 * most / 2**20, 1)


def minigrad_step(work, threads, wrap=lambda model: model):
    """Return a function that runs one step of the workload in minigrad; `wrap` may replace its model."""
    import minigrad as mg
    from minigrad import nn, optim
    from minigrad.nn import functional as F

    mg.set_num_threads(threads)
    device = work.device
    x, y = (None if array is None else mg.tensor(array, device=device) for array in inputs(work))

    if work.kind == "chain":
        a = mg.ones((4, 4), device=device, requires_grad=True)

        def chain():
            v = a
            for _ in range(500):
                v = v * a
                v = v + a
            a.grad = None
            v.sum().backward()

        return chain

    if is_single(work.kind):
        from minigrad.engine.ops.batch_norm import batch_norm_train

        def batch_norm(x, gain, bias):
            return batch_norm_train(x, gain, bias)[0]

        norm, way = work.kind.split("_")
        other = x + 1
        function = {
            "ln": lambda x, gain, bias: mg.layer_norm(x, gain.shape, gain, bias),
            "rms": lambda x, gain: mg.rms_norm(x, gain.shape, gain, 1e-5),
            "gn4": lambda x, gain, bias: mg.group_norm(x, 8, gain, bias),
            "in4": lambda x, gain, bias: mg.instance_norm(x, weight=gain, bias=bias),
            "bn": batch_norm,
            "bn4": batch_norm,
            "softmax": lambda x: mg.softmax(x, -1),
            "copy": lambda x: x.copy(),
            "relu": mg.relu,
            "add": lambda x: x + other,
            "row": lambda x, gain: x + gain,
            "number": lambda x: x + 1.5,
            "transpose": lambda x: x.T.contiguous(),
            "sum": lambda x: x.sum(-1),
        }[norm]
        shape = norm_shapes(work)[1]
        leaves = [x.requires_grad_(), *(new(shape, device=device, requires_grad=True) for new in (mg.ones, mg.zeros))]
        leaves = leaves[: LEAVES.get(norm, 3)]
        if way == "fwd":

            def forward():
                with mg.no_grad():
                    function(*leaves)

            return forward
        out = function(*leaves)
        g = mg.random.normal(0.0, 1.0, out.shape, device=device)
        return lambda: mg.grad(out, leaves, g, retain_graph=True)

    if work.kind == "lstm":
        layer = nn.LSTM(100, work.hidden).to(device)
        g = mg.random.normal(0.0, 1.0, (80, work.batch, work.hidden), device=device)
        x.requires_grad_()
        return lambda: mg.grad(layer(x)[0], [x, *layer.parameters()], g)

    if work.kind == "attn":
        leaves = [u.copy().requires_grad_() for u in x]
        g = mg.random.normal(0.0, 1.0, x.shape[1:], device=device)
        return lambda: mg.grad(F.scaled_dot_product_attention(*leaves, is_causal=True), leaves, g)

    class LastState(nn.Module):
        """The last state of a recurrent layer as logits."""

        def __init__(self, rnn):
            super().__init__()
            self.rnn, self.out = rnn, nn.Linear(128, 10)

        def forward(self, x):
            return self.out(self.rnn(x)[1][0])

    class GPT(nn.Module):
        """The logits of all positions, in one batch."""

        def __init__(self):
            super().__init__()
            self.words, self.positions = nn.Embedding(96, 128), nn.LearnedPositions(128, 128, batch_first=True)
            block = nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 4, nn.LayerNorm(128))
            self.out = nn.Linear(128, 96)

        def forward(self, x):
            return self.out(self.blocks(self.positions(self.words(x)), is_causal=True)).reshape(-1, 96)

    class LNLSTM(nn.Module):
        """The last state of an LSTM over word vectors as one logit."""

        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20000, 100)
            self.lstm, self.out = nn.LSTM(100, work.hidden, norm="layer"), nn.Linear(work.hidden, 1)

        def forward(self, x):
            return self.out(self.lstm(self.words(x))[1][0][0]).reshape(-1)

    loss_of = F.cross_entropy
    if work.kind == "tiny":
        model = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 2))
        loss_of = F.mse_loss
    elif work.kind.startswith("mlp"):
        hidden = work.hidden
        model = nn.Sequential(
            nn.Linear(784, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )
    elif work.kind == "lenet":
        model = nn.Sequential(
            nn.Conv2d(1, 6, 5),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 120),
            nn.Tanh(),
            nn.LayerNorm(120),
            nn.Linear(120, 84),
            nn.Tanh(),
            nn.LayerNorm(84),
            nn.Linear(84, 10),
        )
    elif work.kind == "lnrnn":
        model = LastState(nn.RNN(28, 128, bias=False, norm="layer"))
    elif work.kind == "mingru":
        model = LastState(nn.MinGRU(28, 128))
    elif work.kind == "gpt":
        model, y = GPT(), y.reshape(-1)
    else:
        model, loss_of, y = LNLSTM(), F.binary_cross_entropy_with_logits, y.astype("float32")
    model = wrap(model.to(device))
    optimizer = optim.Adam(model.parameters(), 1e-3)

    def step():
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


def medium_step(work, threads):
    """Return the step of minigrad, whose products may round their factors to bfloat16."""
    import minigrad as mg

    mg.set_float32_matmul_precision("medium")
    return minigrad_step(work, threads)


def captured_step(work, threads):
    """Return the step of minigrad, captured."""
    import minigrad as mg

    return mg.capture(minigrad_step(work, threads))
