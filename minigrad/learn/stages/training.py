"""A training loop that recognizes digits.

Everything comes together: a network, a loss, gradients, an optimizer. From
here on, minigrad does the work of the stages before.

1. `train_epoch(model, optimizer, batches)` goes through the batches once.
   `batches` yields pairs (images, labels). For each of them: forget the old
   gradients, compute the cross-entropy, run the backward pass, take a step.
   It returns the mean of the losses, a Python float. The model has to be in
   training mode: model.train().

2. `accuracy(model, images, labels)` is the share of images whose largest
   output is at the label, a Python float. Nothing may be recorded meanwhile,
   and dropout must be off: model.eval().

3. `fit(images, labels)` builds a network, trains it, and returns it. images
   is (N, 8, 8), float32 from 0 to 1; labels is (N,), int64; both are
   minigrad tensors. The check knows 359 more images, which are not among
   these, and your network has to get 95 % of them right. A minute is plenty:
   seconds suffice.

Useful: nn.Sequential, nn.Flatten, nn.Linear, nn.LayerNorm, nn.ReLU,
F.cross_entropy, optim.Adam, data.DataLoader, data.ArrayDataset. The digits
come with scikit-learn; nothing is downloaded.
"""

import minigrad as mg
from minigrad import data, nn, optim
from minigrad.nn import functional as F


def train_epoch(model, optimizer, batches):
    """Train on all batches once; returns the mean loss."""
    raise NotImplementedError


def accuracy(model, images, labels):
    """The share of images that the model gets right."""
    raise NotImplementedError


def fit(images, labels):
    """Return a trained network."""
    raise NotImplementedError
