#!/usr/bin/env bash
# PyTorch 2.13.0: torch.optim.swa_utils.AveragedModel(model, use_buffers=True) averages the integers num_batches_tracked of
# BatchNorm, too, and rounds each average down: the count stays what it was at the first update (1 after 100 batches).
# The copy then goes on training with momentum=None as if it had seen one batch: the next batch weighs 1/2, not 1/101.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

found = {}
for name, options in {"equal weights": {}, "ema 0.999": {"multi_avg_fn": get_ema_multi_avg_fn(0.999)}}.items():
    model = torch.nn.BatchNorm1d(1, momentum=None)
    averaged = AveragedModel(model, use_buffers=True, **options)
    for _ in range(100):
        model(torch.tensor([[-1.0], [1.0]]))
        averaged.update_parameters(model)
    count = averaged.module.num_batches_tracked.item()
    averaged.module(torch.tensor([[100.0], [102.0]]))
    found[name] = model.num_batches_tracked.item(), count, averaged.module.running_mean.item()
    print(name, "batches of the model, of its average, mean after one batch around 101:", *found[name])
assert torch.__version__.startswith("2.13.0")
assert all(values[:2] == (100, 1) and abs(values[2] - 50.5) < 1e-3 for values in found.values())
PYTHON
