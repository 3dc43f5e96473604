"""Batch normalization in training: two variances, running estimates, and a gradient through the statistics."""

import minigrad as mg
from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.checks.layer_norm import FAR
from minigrad.learn.stages.batch_norm import batch_norm, batch_norm_backward
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


VARIANCE, MEANS = "x.var(axis=0)", "g.mean(axis=0) - n * (g * n).mean(axis=0)"
SQUARES = {
    """The variance is E[x^2] - E[x]^2. If the mean is large, both are nearly equal, and rounding is all that is left.
    Subtract the mean first, then square.""": {VARIANCE: "(x * x).mean(axis=0) - x.mean(axis=0) ** 2"},
}
PARTS = [
    Part(
        "batch_norm", right, cases, ("y", "the running mean", "the running variance"),
        mistakes(batch_norm, {
            "y is normalized by the unbiased variance. The batch itself uses the one divided by N.":
                {"np.sqrt(var + eps)": "np.sqrt(var * count / (count - 1) + eps)"},
            """The mean and the variance are over the columns, as in layer normalization. Batch normalization takes them over
            the rows: axis=0.""": {
                "(x - mean) / np.sqrt(var": "(x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True)",
            },
            """The mean and the variance are over axis -1, and broadcasting has lined them up with the channels. Batch
            normalization takes them over the rows: axis=0.""": {"axis=0": "axis=-1"},
            **SQUARES,
            "eps is outside the root: sqrt(var + eps), not sqrt(var) + eps.": {"np.sqrt(var + eps)": "(np.sqrt(var) + eps)"},
            "y is normalized by the running estimates. That is evaluation; in training, the batch's own are used.":
                {"(x - mean) / np.sqrt(var": "(x - running_mean) / np.sqrt(running_var"},
            "momentum is the share of the new value here, as in PyTorch. You give it to the old one.":
                {"(1 - momentum)": "momentum", "+ momentum": "+ (1 - momentum)"},
            "The running estimate is replaced instead of moved by momentum.": {"(1 - momentum)": "0", "+ momentum": "+ 1"},
            "The running variance takes the biased variance. It has to be the unbiased one, divided by N - 1.":
                {"momentum * unbiased": "momentum * var"},
        }),
    ),
    Part(
        "batch_norm_backward", right_backward, backward_cases,
        ("the gradient of x", "the gradient of weight", "the gradient of bias"),
        mistakes(batch_norm_backward, {
            """It treats the statistics as constants. Every sample takes part in them, so that two more terms lead back
            to x.""": {f" - {MEANS}": ""},
            "It treats the variance as a constant: the term with the mean of g * n is missing.":
                {" - n * (g * n).mean(axis=0)": ""},
            "It treats the mean as a constant: the term with the mean of g is missing.": {" - g.mean(axis=0)": ""},
            "The means are exchanged: the mean of g is subtracted, and n is multiplied by the mean of g * n.":
                {MEANS: "(g * n).mean(axis=0) - n * g.mean(axis=0)"},
            **SQUARES,
            "weight is missing.": {") * weight /": ") /"},
            "The division by sqrt(var + eps) is missing.": {") * weight / root": ") * weight"},
            "The means are over the columns, as in layer normalization. Here they are over the rows.":
                {MEANS: MEANS.replace("axis=0", "1, keepdims=True")},
            "x is normalized over its columns, as in layer normalization. The statistics of a channel are over axis 0.": {
                "x.var(axis=0)": "x.var(-1, keepdims=True)", "x.mean(axis=0)": "x.mean(-1, keepdims=True)",
            },
            """The means are over axis -1, and broadcasting has lined them up with the channels. Here they are over the
            rows: axis=0.""": {"axis=0": "axis=-1"},
            "Your gradient is what you get if the variance is divided by N - 1. Divide by N.": {VARIANCE: "x.var(axis=0, ddof=1)"},
            "There are sums where means have to be: divide both by N.": {MEANS: MEANS.replace("mean", "sum")},
            """It is 0, or nearly. That is the gradient for a cotangent of ones, where everything cancels. Use
            g.""": {"dx = ": "dx = 0 * "},
            "It is the sum of g * x. weight multiplies n, the normalized x.": {"dx, (g * n)": "dx, (g * x)"},
            "It is g * n without the sum over the rows. All rows share the weight.": {"(g * n).sum(axis=0)": "g * n"},
            "It contains weight. y = n * weight + bias, so its gradient is the sum of g * n.":
                {"(g * n).sum(axis=0)": "(g * n).sum(axis=0) * weight"},
            "It is the sum of n. The cotangent g is missing.": {"(g * n).sum": "n.sum"},
            "It is g without the sum over the rows. All rows share the bias.": {", g.sum(axis=0)": ", g"},
            "It is the mean over the rows. Their contributions add up.": {", g.sum": ", g.mean"},
        }),
    ),
]  # fmt: skip
