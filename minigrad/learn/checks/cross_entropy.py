"""Softmax with cross-entropy: the mean over rows, overflow, underflow, and p minus the label."""

import numpy as np

import minigrad as mg
from minigrad.learn.checking import Part, gradients

HINTS = (
    "log p_j = z_j - log(sum_k exp(z_k)). Nothing has to be divided.",
    """Subtract the largest number of each row first: logits - logits.max(axis=1, keepdims=True). Now the largest exponent
    is 0.""",
    """The element of each row at its label: log_p[np.arange(len(labels)), labels]. The loss is minus their mean.""",
    """The derivative of -log p_t with respect to z_j is p_j, minus 1 where j = t. The mean over N rows divides it by N, and
    the cotangent g multiplies it.""",
)


def rows(draw):
    for n, c in ((1, 2), (2, 2), (2, 3), (draw.size(4, 6), draw.size(5, 8))):
        yield draw(n, c), draw.rng.integers(0, c, n)
    if draw.small:
        yield np.array([[1000.0, 0.0]]), np.array([0])
        yield np.array([[1000.0, 0.0]]), np.array([1])
        yield np.array([[1000.0, 0.0], [-1000.0, -1001.0]]), np.array([0, 1])


def cases(draw):
    for logits, labels in rows(draw):
        yield {"logits": logits, "labels": labels}


def backward_cases(draw):
    for logits, labels in rows(draw):
        yield {"g": draw(1)[0], "logits": logits, "labels": labels}


def right(logits, labels):
    return mg.cross_entropy(mg.tensor(logits), mg.tensor(labels)).item()


def right_backward(g, logits, labels):
    return gradients(lambda x: mg.cross_entropy(x, mg.tensor(labels)), g, logits)[0]


def largest(z, axis):
    return z.max(axis=axis, keepdims=True)


def of_batch(z, axis):
    return z.max()


def softmax(z, axis=1, shift=largest):
    p = np.exp(z - shift(z, axis))
    return p / p.sum(axis=axis, keepdims=True)


def at(values, labels):
    return values[np.arange(len(labels)), labels]


def log_softmax(z, axis=1, shift=largest):
    z = z - shift(z, axis)
    return z - np.log(np.exp(z).sum(axis=axis, keepdims=True))


def off(labels, c):
    return np.eye(c)[labels]


PARTS = [
    Part(
        "cross_entropy", right, cases, ("the loss",),
        {
            "exp overflows for large logits. Subtract the largest number of each row first.": lambda z, t: (
                -(at(z, t) - np.log(np.exp(z).sum(axis=1))).mean()
            ),
            """exp overflows for large logits. Subtract the largest number of each row first, and then do not take the
            logarithm of p.""": lambda z, t: -np.log(at(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), t)).mean(),
            """p underflows to 0 for a very unlikely label, and log 0 is infinite. Compute log p as a difference, without
            p.""": lambda z, t: -np.log(at(softmax(z), t)).mean(),
            """You subtract the largest number of the whole batch: exp is 0 in a row far below it. Each row has its own
            maximum, max(axis=1, keepdims=True).""": lambda z, t: -at(log_softmax(z, shift=of_batch), t).mean(),
            """log_p[:, labels] takes the columns of all labels in every row, an (N, N) array. Take one element of each row:
            log_p[np.arange(N), labels].""": lambda z, t: -log_softmax(z)[:, t].mean(),
            "It is the sum over the rows. The loss is their mean.": lambda z, t: -at(log_softmax(z), t).sum(),
            "It is the mean over all N * C elements. Only the N rows count.": lambda z, t: -at(log_softmax(z), t).sum() / z.size,
            "Its sign is wrong: the logarithm of a probability is negative, and the loss is minus that.": lambda z, t: (
                at(log_softmax(z), t).mean()
            ),
            "The softmax is over the wrong axis. The probabilities of each row add up to 1: axis=1.": lambda z, t: (
                -at(log_softmax(z, 0), t).mean()
            ),
            """You subtracted the maximum inside the logarithm only; subtract it from the logit at the label too.""": lambda z, t: (
                -(at(z, t) - np.log(np.exp(z - z.max(axis=1, keepdims=True)).sum(axis=1))).mean()
            ),
        },
    ),
    Part(
        "cross_entropy_backward", right_backward, backward_cases, ("the gradient of the logits",),
        {
            "It is not divided by N. The loss is a mean over the rows.": lambda g, z, t: g * (softmax(z) - off(t, z.shape[1])),
            "It is p without the 1 that is subtracted at the label.": lambda g, z, t: g * softmax(z) / len(t),
            "Its sign is wrong. It is p minus 1 at the label, not the reverse.": lambda g, z, t: (
                g * (off(t, z.shape[1]) - softmax(z)) / len(t)
            ),
            "It is divided by N * C. The mean is over the N rows only.": lambda g, z, t: (
                g * (softmax(z) - off(t, z.shape[1])) / z.size
            ),
            "The softmax is over the wrong axis. The probabilities of each row add up to 1: axis=1.": lambda g, z, t: (
                g * (softmax(z, 0) - off(t, z.shape[1])) / len(t)
            ),
            "exp overflows for large logits. Subtract the largest number of each row first.": lambda g, z, t: (
                g * (np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) - off(t, z.shape[1])) / len(t)
            ),
            """You subtract the largest number of the whole batch: exp is 0 in a row far below it. Each row has its own
            maximum, max(axis=1, keepdims=True).""": lambda g, z, t: (
                g * (softmax(z, shift=of_batch) - off(t, z.shape[1])) / len(t)
            ),
            """p[:, labels] takes the columns of all labels in every row. The 1 is subtracted from one element of each row:
            p[np.arange(N), labels].""": lambda g, z, t: g * (softmax(z) - off(t, z.shape[1]).max(axis=0)) / len(t),
            "It does not depend on g, and is right only if g = 1. The cotangent multiplies the gradient.": lambda g, z, t: (
                (softmax(z) - off(t, z.shape[1])) / len(t)
            ),
        },
    ),
]  # fmt: skip
