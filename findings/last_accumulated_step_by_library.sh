#!/usr/bin/env bash
# An epoch of five batches with gradients accumulated over two: what happens to the fifth? PyTorch Lightning 2.6.6 and
# Accelerate 1.15.0 step with it alone but halve its gradient, as if another one were missing: each epoch ends with a
# step half as long. Ignite 0.5.5 keeps it for the next epoch, so that the number of steps differs from epoch to epoch,
# and after the last epoch it is lost. In none does the last step take the mean of the batches that there are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy \
    pytorch-lightning==2.6.6 accelerate==1.15.0 pytorch-ignite==0.5.5 2> /dev/null
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON' 2> errors || { cat errors; exit 1; }
import pytorch_lightning
import torch
from accelerate import Accelerator
from ignite.engine import Events, create_supervised_trainer

batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(5, 1), torch.ones(5, 1)), batch_size=1)
found = {}  # the weight after each batch of one epoch, where each batch has the gradient 1 and the rate is 1


class Net(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, _):
        return (self.weight * batch[0]).sum()

    def on_train_batch_end(self, *_):
        found.setdefault("Lightning", []).append(self.weight.item())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1.0)


quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
pytorch_lightning.Trainer(max_epochs=1, accumulate_grad_batches=2, accelerator="cpu", **quiet).fit(Net(), batches)


def net():
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    return layer, torch.optim.SGD(layer.parameters(), 1.0)


accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
layer, optimizer, loader = accelerator.prepare(*net(), batches)
found["Accelerate"] = []
for x, _ in loader:
    with accelerator.accumulate(layer):
        accelerator.backward(layer(x).sum())
        optimizer.step()
        optimizer.zero_grad()
    found["Accelerate"].append(layer.weight.item())

layer, optimizer = net()
trainer = create_supervised_trainer(layer, optimizer, lambda y, _: y.sum(), gradient_accumulation_steps=2)
found["Ignite, 3 epochs"] = []
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _: found["Ignite, 3 epochs"].append(layer.weight.item()))
trainer.run(batches, 3)

for name, weights in found.items():
    print(f"{name:17}", weights)
assert found["Lightning"] == found["Accelerate"] == [0, -1, -1, -2, -2.5]
assert found["Ignite, 3 epochs"] == [-2, -5, -7]
PYTHON
