"""Batch normalization in training: two variances, running estimates, and a gradient through the statistics."""

import numpy as np

import minigrad as mg
from minigrad.learn.checking import Part, gradients
from minigrad.learn.checks.layer_norm import FAR
from minigrad.nn import functional as F

HINTS = (
    "Everything is over axis 0. x.mean(axis=0) has the shape (C,), and broadcasting does the rest.",
    "The unbiased variance is x.var(axis=0, ddof=1). It is used for the running estimate only.",
    "momentum is the share of the new value, as in PyTorch. With momentum = 0.1, nine tenths of the old one stay.",
    """The gradient of x has three terms, as in layer normalization: g, minus the mean of g, minus n times the mean of
    g * n, each over the rows. weight is the same for all rows of a channel, so it can be multiplied at the end, together
    with 1 / sqrt(var + eps).""",
)


def shapes(draw):
    for n, c in ((2, 1), (3, 2), (2, 2), (draw.size(4, 7), draw.size(3, 5))):
        yield n, c, 0.25 if draw.small else 1e-5


def cases(draw):
    for n, c, eps in shapes(draw):
        yield {
            "x": draw(n, c), "weight": draw(c), "bias": draw(c), "running_mean": draw(c), "running_var": abs(draw(c)),
            "momentum": 0.25 if draw.small else 0.1, "eps": eps,
        }  # fmt: skip
    if draw.small:
        yield {
            "x": FAR + draw(2, 3), "weight": draw(3), "bias": draw(3), "running_mean": draw(3),
            "running_var": abs(draw(3)), "momentum": 0.25, "eps": 0.25,
        }  # fmt: skip


def backward_cases(draw):
    for n, c, eps in shapes(draw):
        yield {"g": draw(n, c), "x": draw(n, c), "weight": draw(c), "eps": eps}
    if draw.small:
        yield {"g": draw(2, 3), "x": FAR + draw(2, 3), "weight": draw(3), "eps": 0.25}


def right(x, weight, bias, running_mean, running_var, momentum, eps):
    mean, var = mg.tensor(running_mean), mg.tensor(running_var)
    y = F.batch_norm(mg.tensor(x), mean, var, mg.tensor(weight), mg.tensor(bias), True, momentum, eps)
    return y.numpy(), mean.numpy(), var.numpy()


def right_backward(g, x, weight, eps):
    return gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.1, eps), g, x, weight, 0 * weight)


def of_squares(x, axis, ddof, keepdims=False):
    var = (x * x).mean(axis, keepdims=keepdims) - x.mean(axis, keepdims=keepdims) ** 2
    return var * x.shape[axis] / (x.shape[axis] - ddof)


def forward(axis=0, used=0, kept=1, outside=False, share=lambda m: m, running=False, variance=np.var):
    """A batch norm with one part of it replaced; `used` and `kept` are the ddof of the two variances."""

    def answer(x, weight, bias, old_mean, old_var, momentum, eps):
        mean, var = x.mean(axis, keepdims=True), variance(x, axis, ddof=used, keepdims=True)
        new_mean, new_var = x.mean(axis), variance(x, axis, ddof=kept)
        m = share(momentum)
        if axis:
            new_mean, new_var = x.mean(0), x.var(0, ddof=kept)
        if running:
            mean, var = old_mean, old_var
        root = np.sqrt(var) + eps if outside else np.sqrt(var + eps)
        y = (x - mean) / root * weight + bias
        return y, (1 - m) * old_mean + m * new_mean, (1 - m) * old_var + m * new_var

    return answer


def replaced(of_x=None, of_weight=None, of_bias=None, ddof=0, variance=np.var):
    """A backward pass with one gradient replaced."""

    def answer(g, x, weight, eps):
        root = np.sqrt(variance(x, 0, ddof=ddof) + eps)
        n = (x - x.mean(0)) / root
        dx = (g - g.mean(0) - n * (g * n).mean(0)) * weight / root if of_x is None else of_x(g, n, root, weight)
        dw = (g * n).sum(0) if of_weight is None else of_weight(g, n, x)
        db = g.sum(0) if of_bias is None else of_bias(g)
        return dx, dw, db

    return answer


def weighted(g, x, weight, eps):
    dx, dw, db = replaced()(g, x, weight, eps)
    return dx, dw * weight, db


PARTS = [
    Part(
        "batch_norm", right, cases, ("y", "the running mean", "the running variance"),
        {
            """y is normalized by the unbiased variance. The batch itself uses the one divided by N.""": forward(used=1),
            """The mean and the variance are over the columns, as in layer normalization. Batch normalization takes them over
            the rows: axis=0.""": forward(axis=1),
            """The variance is E[x^2] - E[x]^2. If the mean is large, both are nearly equal, and rounding is all that is left.
            Subtract the mean first, then square.""": forward(variance=of_squares),
            "eps is outside the root: sqrt(var + eps), not sqrt(var) + eps.": forward(outside=True),
            """y is normalized by the running estimates. That is evaluation; in training, the batch's own are
            used.""": forward(running=True),
            """momentum is the share of the new value here, as in PyTorch. You give it to the old one.""": forward(
                share=lambda m: 1 - m
            ),
            "The running estimate is replaced instead of moved by momentum.": forward(share=lambda m: 1.0),
            """The running variance takes the biased variance. It has to be the unbiased one, divided by N -
            1.""": forward(kept=0),
        },
    ),
    Part(
        "batch_norm_backward", right_backward, backward_cases,
        ("the gradient of x", "the gradient of weight", "the gradient of bias"),
        {
            """It treats the statistics as constants. Every sample takes part in them, so that two more terms lead back
            to x.""": replaced(lambda g, n, root, w: g * w / root),
            "It treats the variance as a constant: the term with the mean of g * n is missing.": replaced(
                lambda g, n, root, w: (g - g.mean(0)) * w / root
            ),
            "It treats the mean as a constant: the term with the mean of g is missing.": replaced(
                lambda g, n, root, w: (g - n * (g * n).mean(0)) * w / root
            ),
            """The means are exchanged: the mean of g is subtracted, and n is multiplied by the mean of g * n.""": replaced(
                lambda g, n, root, w: (g - (g * n).mean(0) - n * g.mean(0)) * w / root
            ),
            """The variance is E[x^2] - E[x]^2. If the mean is large, both are nearly equal, and rounding is all that is left.
            Subtract the mean first, then square.""": replaced(variance=of_squares),
            "weight is missing.": replaced(lambda g, n, root, w: (g - g.mean(0) - n * (g * n).mean(0)) / root),
            "The division by sqrt(var + eps) is missing.": replaced(
                lambda g, n, root, w: (g - g.mean(0) - n * (g * n).mean(0)) * w
            ),
            "The means are over the columns, as in layer normalization. Here they are over the rows.": replaced(
                lambda g, n, root, w: (g - g.mean(1, keepdims=True) - n * (g * n).mean(1, keepdims=True)) * w / root
            ),
            """Your gradient is what you get if the variance is divided by N - 1. Divide by N.""": replaced(ddof=1),
            "There are sums where means have to be: divide both by N.": replaced(
                lambda g, n, root, w: (g - g.sum(0) - n * (g * n).sum(0)) * w / root
            ),
            """It is 0, or nearly. That is the gradient for a cotangent of ones, where everything cancels. Use
            g.""": replaced(lambda g, n, root, w: 0 * g),
            "It is the sum of g * x. weight multiplies n, the normalized x.": replaced(
                of_weight=lambda g, n, x: (g * x).sum(0)
            ),
            "It is g * n without the sum over the rows. All rows share the weight.": replaced(of_weight=lambda g, n, x: g * n),
            "It contains weight. y = n * weight + bias, so its gradient is the sum of g * n.": weighted,
            "It is the sum of n. The cotangent g is missing.": replaced(of_weight=lambda g, n, x: n.sum(0)),
            "It is g without the sum over the rows. All rows share the bias.": replaced(of_bias=lambda g: g),
            "It is the mean over the rows. Their contributions add up.": replaced(of_bias=lambda g: g.mean(0)),
        },
    ),
]  # fmt: skip
