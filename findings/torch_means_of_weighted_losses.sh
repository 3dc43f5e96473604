#!/usr/bin/env bash
# PyTorch 2.13.0: with reduction="mean", a `weight` that is the same for all elements changes neither F.mse_loss nor
# F.l1_loss, which divide by its sum, but F.huber_loss and F.binary_cross_entropy, which divide by the number of
# elements. So huber_loss, which is half of mse_loss where errors are below delta, is another share of it with each
# weight. cross_entropy does the one for labels, and the other for the same labels as probabilities.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F

x, y, logits = torch.tensor([0.5, 0.25, 0.125, 0.75]), torch.zeros(4), torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 0.0]])
labels = torch.tensor([0, 2])
losses = {
    "mse_loss": lambda w: F.mse_loss(x, y, weight=w.expand(4)),
    "l1_loss": lambda w: F.l1_loss(x, y, weight=w.expand(4)),
    "huber_loss": lambda w: F.huber_loss(x, y, weight=w.expand(4)),
    "binary_cross_entropy": lambda w: F.binary_cross_entropy(x, y, weight=w.expand(4)),
    "cross_entropy of labels": lambda w: F.cross_entropy(logits, labels, weight=w.expand(3)),
    "cross_entropy of probabilities": lambda w: F.cross_entropy(logits, F.one_hot(labels, 3).float(), weight=w.expand(3)),
}
ratio = {}
for name, loss in losses.items():
    one, ten = loss(torch.tensor([1.0])).item(), loss(torch.tensor([10.0])).item()
    ratio[name] = round(ten / one, 4)
    print(f"{name:31} {one:.4f}, with each weight 10: {ten:.4f}")
assert list(ratio.values()) == [1, 1, 10, 10, 1, 10]
assert abs(losses["mse_loss"](torch.ones(1)) / losses["huber_loss"](torch.ones(1)) - 2) < 1e-6
PYTHON
