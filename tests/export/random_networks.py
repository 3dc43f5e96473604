"""Random networks of every kind of layer, the same in every run, with inputs of two sizes.

``python tests/export/random_networks.py`` prints how far OpenVINO is from minigrad with each, and needs ``pip install onnx
openvino==2026.4.1``.
"""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import nn

ACTIVATIONS = [nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.ELU, nn.Softplus]
CELLS = {
    "RNN": [{}, {"nonlinearity": "relu"}, {"bias": "input"}],
    "LSTM": [{}, {"carry_norm": True}, {"norm_cell": False}, {"norm_each_gate": True}, {"gate_activation": "hard_sigmoid"}],
    "GRU": [{}, {"convention": "paper"}, {"reset_after": False}, {"gate_activation": "hard_sigmoid"}],
    "MinGRU": [{}], "MinLSTM": [{}],
}  # fmt: skip


def pick(rng, options):
    return options[rng.integers(len(options))]


def rows(rng):
    """Return layers, the shape of their input for two lengths, and the names of its free axes."""
    sizes = rng.integers(4, 24, rng.integers(2, 5)).tolist()
    parts = []
    for n, m in pairwise(sizes):
        norms = [nn.LayerNorm, nn.RMSNorm, nn.BatchNorm1d, lambda width: nn.GroupNorm(1, width), nn.ScaleNorm]
        parts += [nn.Linear(n, m, bias=bool(rng.integers(2))), pick(rng, norms)(m), pick(rng, ACTIVATIONS)()]
    return nn.Sequential(*parts), lambda n, t: (n, sizes[0]), {0: "N"}


def images(rng):
    channels, parts = int(rng.integers(1, 4)), []
    first = channels
    for _ in range(rng.integers(1, 4)):
        out = 2 * int(rng.integers(1, 5))
        norms = [nn.BatchNorm2d, lambda c: nn.GroupNorm(2, c), lambda c: nn.InstanceNorm2d(c, affine=True)]
        kernel = int(pick(rng, [1, 3, 5]))
        parts += [
            nn.Conv2d(channels, out, kernel, padding=kernel // 2),
            pick(rng, norms)(out),
            pick(rng, ACTIVATIONS)(),
        ]
        parts += pick(rng, [[], [nn.MaxPool2d(2)], [nn.AvgPool2d(2)], [nn.Conv2d(out, out, 3, stride=2, padding=1)]])
        channels = out
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]
    return nn.Sequential(*parts), lambda n, t: (n, first, 16 + t, 20), {0: "N", 2: "T"}


class Sequences(nn.Module):
    """A recurrent layer with a head."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x, lengths=None):
        return self.head(self.layer(x, lengths=lengths)[0])


def sequences(rng):
    kind, both = pick(rng, list(CELLS)), bool(rng.integers(2))
    options = dict(pick(rng, CELLS[kind]))
    norm = pick(rng, ["layer", "rms"] if any("norm" in name for name in options) else ["layer", "layer", "rms", None])
    n, m = rng.integers(4, 12, 2).tolist()  # the norm of two numbers is nearly their signs
    layer = getattr(nn, kind)(n, m, int(rng.integers(1, 3)), bidirectional=both, norm=norm, **options)
    return Sequences(layer, m * (1 + both)), lambda samples, t: (t, samples, n), {0: "T", 1: "N"}


def attention(rng):
    heads = int(rng.integers(1, 4))
    width = heads * int(rng.integers(4, 7))
    options = {"norm_first": bool(rng.integers(2)), "activation": pick(rng, ["relu", "gelu"]), "batch_first": True}
    layers = [nn.TransformerEncoderLayer(width, heads, 2 * width, **options) for _ in range(rng.integers(1, 3))]
    return nn.Sequential(*layers, nn.Linear(width, 3)), lambda n, t: (n, t, width), {0: "N", 1: "T"}


def networks(count=30, seed=54):
    """Yield names, modules, examples, free axes, and other arguments than the examples."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        make = (sequences, sequences, rows, images, attention)[k % 5]
        mg.manual_seed(k)
        module, shape, free = make(rng)
        calls = [{"x": mg.tensor(rng.standard_normal(shape(n, t)).astype("float32"))} for n, t in ((2, 5), (7, 11))]
        for p in module.parameters():
            p.data = p.detach() + mg.tensor(rng.normal(0, 0.1, p.shape).astype("float32"))
        module(**calls[0])  # running statistics
        axes = {"x": free}
        if make is sequences and rng.integers(4):
            axes["lengths"] = {0: "N"}
            for call, lengths in zip(calls, ([5, 2], [11, 0, 3, 1, 7, 11, 4]), strict=True):
                call["lengths"] = mg.tensor(lengths)
        yield f"{k} {make.__name__}", module.eval(), calls[0], axes, calls[1]


def main():
    import openvino

    core = openvino.Core()
    with tempfile.TemporaryDirectory() as folder:
        for name, module, example, free, other in networks():
            path = Path(folder) / "m.onnx"
            mg.onnx.export(module, example, path, free)
            model = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
            (found,) = model({key: x.numpy() for key, x in other.items()}).values()
            with mg.no_grad():
                ours = module(**other).numpy()
            print(f"{name:14} {abs(found - ours).max() / max(1, abs(ours).max()):.1e}")


if __name__ == "__main__":
    main()
