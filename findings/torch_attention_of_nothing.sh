#!/usr/bin/env bash
# PyTorch 2.13.0 (CPU): what nn.MultiheadAttention gives to a sample whose keys are all padding depends on what has
# nothing to do with the mask. In training, it is 0 plus the bias with need_weights=False and NaN with
# need_weights=True. In evaluation it is finite while gradients are recorded and NaN under no_grad, so that an
# nn.TransformerEncoderLayer that trains and validates without a NaN begins to give them when it is used for inference.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch import nn

torch.manual_seed(0)
x, padding = torch.randn(2, 3, 8), torch.tensor([[True, True, True], [False, False, True]])
attention = nn.MultiheadAttention(8, 2, batch_first=True)
layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
found = {}
for mode in ("training", "evaluation"):
    attention.train(mode == "training")
    layer.train(mode == "training")
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            calls = {
                "attention, weights": attention(x, x, x, key_padding_mask=padding)[0],
                "attention": attention(x, x, x, key_padding_mask=padding, need_weights=False)[0],
                "encoder layer": layer(x, src_key_padding_mask=padding),
            }
        for name, y in calls.items():
            assert y[1].isfinite().all()
            found[name, mode, recorded] = "NaN" if y[0].isnan().all() else "finite"
            print(f"{name:20}{mode:12}{'with' if recorded else 'without':8} gradients: {found[name, mode, recorded]}")
for name in ("attention", "encoder layer"):
    assert [found[name, *key] for key in (("training", True), ("training", False), ("evaluation", True))] == ["finite"] * 3
    assert found[name, "evaluation", False] == "NaN"
assert all(value == "NaN" for (name, *_), value in found.items() if name == "attention, weights")
PYTHON
