"""Find the bug: a layer norm whose weight and bias never train.

The layer computes the right values, and its gradients are right too. But
after an hour of training, weight is still all ones and bias all zeros, and
both are missing in the saved file. A course had this bug in its solution.

`check` builds the layer, trains one step with SGD, and saves and loads it.
Fix the class.
"""

import minigrad as mg
from minigrad import nn


class LayerNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.width = width
        self.eps = eps
        # bug: self.weight = mg.ones(width, dtype="float64", requires_grad=True)
        self.weight = nn.Parameter(mg.ones(width, dtype="float64"))
        # bug: self.bias = mg.zeros(width, dtype="float64", requires_grad=True)
        self.bias = nn.Parameter(mg.zeros(width, dtype="float64"))

    def forward(self, x):
        return mg.layer_norm(x, self.width, self.weight, self.bias, self.eps)
