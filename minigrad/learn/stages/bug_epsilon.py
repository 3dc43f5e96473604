"""Find the bug: the place of eps.

This layer normalization has been in use for weeks, and every test of its
values passed. Then a batch with a blank image came: a row whose elements are
all equal. From that step on, all weights of the network were NaN.

The forward pass of such a row looks harmless, since the numerator is 0. Run
`check`, look at what it says, and fix the function.

It takes and returns minigrad tensors, as in the stage before.
"""

import minigrad as mg


def layer_norm(x, weight, bias, eps):
    centered = x - x.mean(axis=-1, keepdims=True)
    var = (centered * centered).mean(axis=-1, keepdims=True)
    # bug: return centered / (mg.sqrt(var) + eps) * weight + bias
    return centered / mg.sqrt(var + eps) * weight + bias
