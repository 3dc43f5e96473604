"""The network of magika 1.0.3, which tells 214 kinds of files from their bytes: a Flax network in an ONNX file.

Needs ``pip install magika==1.0.3 onnx onnxruntime``.
"""

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

Array = np.ndarray[Any, Any]
PADDING = 256  # the 257th "byte"


class FileTypes(nn.Module):
    """Pieces of four bytes, normalized over the positions, a convolution, and its maximum over them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.gelu = nn.Linear(257, 64), nn.GELU(approximate="tanh")
        self.positions = nn.LayerNorm(512, eps=1e-6)
        self.conv = nn.Conv1d(256, 512, 5)
        self.features = nn.LayerNorm(512, eps=1e-6)
        self.head = nn.Linear(512, 214)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        """Return how probable each kind is for rows of 2048 bytes: (rows, 214)."""
        x = self.gelu(self.bytes(F.one_hot(x, 257).astype(self.bytes.weight.dtype)))
        x = self.positions(x.reshape(-1, 512, 256).permute_dims((0, 2, 1)))
        x = self.gelu(self.conv(x)).max(axis=2)
        return F.softmax(self.head(self.features(x)), -1)


def flax_tree(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Return the weights as Flax has them, from the constants of the graph, which keep some of Flax's names."""
    found = {name.partition("MagikaV2/")[2]: a for name, a in arrays.items() if "MagikaV2/" in name}
    kernels = {a.shape: a for a in arrays.values()}  # the kernels of the two products have no names
    return {
        "Dense_0": {"kernel": kernels[257, 64], "bias": found["Dense_0/Reshape:0"].ravel()},
        **{f"LayerNorm_{k}": {"scale": found[f"LayerNorm_{k}/Reshape_2:0"].ravel(),
                              "bias": found[f"LayerNorm_{k}/Reshape_3:0"].ravel()} for k in (0, 1)},
        # Conv_0's bias comes as a folded constant, (1, 512, 1) without a name.
        "Conv_0": {"kernel": found["Conv_0/transpose_3:0"][..., 0].transpose(2, 1, 0),
                   "bias": next(a for name, a in arrays.items() if "fold" in name and a.size == 512).ravel()},
        "Dense_1": {"kernel": kernels[512, 214], "bias": found["Dense_1/Reshape:0"].ravel()},
    }  # fmt: skip


def ported(arrays: Mapping[str, Array]) -> FileTypes:
    """Return the network with the constants of the graph, by name."""
    net = FileTypes()
    names = {"positions": "LayerNorm_0", "features": "LayerNorm_1"}  # both have one shape, and are sorted by name
    net.load_state_dict(mg.convert.flax(flax_tree(arrays), net, names=names))
    return net


def ends(content: bytes) -> list[int]:
    """Return the first and the last 1024 bytes, without spaces around them, padded inside."""
    first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    return [*first, *[PADDING] * (1024 - len(first)), *[PADDING] * (1024 - len(last)), *last]


# ── with the package ──

FILES = {
    "a script": b"#!/bin/sh\nset -e\nfor f in *.c; do cc -c \"$f\"; done\n",
    "a program": b"import sys\n\ndef main() -> None:\n    print(sys.argv)\n\nif __name__ == '__main__':\n    main()\n",
    "a page": b"<!DOCTYPE html>\n<html><head><title>A page</title></head><body><p>Text.</p></body></html>\n",
    "a table": b"name,weight\n" + b"".join(b"row%d,%d\n" % (k, k * k) for k in range(40)),
}  # fmt: skip


def main() -> None:
    import onnx
    import onnxruntime

    package = importlib.metadata.distribution("magika")
    folder = Path(str(package.locate_file("magika/models/standard_v3_3")))
    labels = json.loads((folder / "config.min.json").read_text())["target_labels_space"]
    graph = onnx.load(folder / "model.onnx").graph
    net = ported({x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer})
    print(f"{sum(p.size for p in net.parameters()):,} numbers")
    x = np.array([ends(content) for content in FILES.values()])
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"bytes": x.astype(np.int32)})
    ours = net(mg.tensor(x)).detach().numpy()
    for name, row in zip(FILES, ours, strict=True):
        print(f"{name:10} {labels[row.argmax()]:7} {row.max():.2f}")
    print(f"largest difference of a probability: {abs(ours - theirs).max():.1e}")
    exact = net.double()(mg.tensor(x)).detach().numpy()
    print(f"from float64: minigrad {abs(ours - exact).max():.1e}, onnxruntime {abs(theirs - exact).max():.1e}")


if __name__ == "__main__":
    main()
