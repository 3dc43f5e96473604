#!/usr/bin/env bash
# MindSpore 2.10.0 (CPU): the running statistics of nn.BatchNorm2d are "mean" and "variance" in the parameters of a layer
# of its own, and "moving_mean" and "moving_variance" once it is in another cell, where "gamma" and "beta" keep their
# names. So a checkpoint of the layer lacks both statistics for the network, and load_param_into_net only returns them in a
# list, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q mindspore==2.10.0 "numpy<2" 2> /dev/null
"$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import mindspore as ms
from mindspore import nn

alone = nn.BatchNorm2d(3)
names = sorted(alone.parameters_dict())
state = {f"0.{name}": ms.Parameter(value.copy() + 5, name=f"0.{name}") for name, value in alone.parameters_dict().items()}
net = nn.SequentialCell(nn.BatchNorm2d(3))
nested = sorted(net.parameters_dict())
missing, unused = ms.load_param_into_net(net, state)
values = {name: value.asnumpy()[0] for name, value in net.parameters_dict().items()}
print("alone", names, "nested", nested)
print("not loaded", sorted(missing), sorted(unused), values)
assert names == ["beta", "gamma", "mean", "variance"]
assert nested == ["0.beta", "0.gamma", "0.moving_mean", "0.moving_variance"]
assert sorted(missing) == ["0.moving_mean", "0.moving_variance"]
assert values["0.gamma"] == 6 and values["0.moving_mean"] == 0
PYTHON
