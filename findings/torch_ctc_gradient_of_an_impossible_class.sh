#!/usr/bin/env bash
# PyTorch 2.13.0, ctc_loss on the CPU: a class of probability 0 that no alignment needs does not change the loss, which is
# finite, but its gradient is NaN (e^x minus the share of the paths, of which there are none, as 0 / 0). An infinite loss
# of two steps for the target 1 1 has a gradient of NaN, one of no steps a gradient of 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch


def run(probabilities, steps, target):
    """Return the loss and its gradient, for every step the same probabilities of the blank and the labels."""
    x = torch.tensor([[probabilities]] * 2, dtype=torch.float64).log().requires_grad_()
    lengths = torch.tensor([steps]), torch.tensor([len(target)])
    loss = torch.nn.functional.ctc_loss(x, torch.tensor([target]), *lengths, reduction="sum")
    loss.backward()
    print(f"probabilities {probabilities}, {steps} steps, target {target}: {loss.item():.4f}, {x.grad[0, 0].tolist()}")
    return loss.item(), x.grad[0, 0]


loss, gradient = run([0.5, 0.5, 0.0], 2, [1])
assert abs(loss - 0.2877) < 1e-4 and gradient[2].isnan() and not gradient[:2].isnan().any()
loss, gradient = run([0.4, 0.4, 0.2], 2, [1, 1])
assert loss == float("inf") and gradient[1].isnan()
loss, gradient = run([0.4, 0.4, 0.2], 0, [1, 1])
assert loss == float("inf") and (gradient == 0).all()
PYTHON
