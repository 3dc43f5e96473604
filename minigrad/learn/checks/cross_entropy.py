"""Softmax with cross-entropy: the mean over rows, overflow, underflow, and p minus the label."""

import numpy as np

import minigrad as mg
from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.stages.cross_entropy import cross_entropy, cross_entropy_backward

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


SHIFT, AT = " - logits.max(axis=1, keepdims=True)", "[np.arange(len(labels)), labels]"
LOG_P = "shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))"
LOG_OF_P = "np.log(np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True))"
WRONG_AXIS = {
    "The softmax is over the wrong axis. The probabilities of each row add up to 1: axis=1.": {"axis=1": "axis=0"},
}
OVERFLOW = {"exp overflows for large logits. Subtract the largest number of each row first.": {SHIFT: ""}}
WHOLE_BATCH = {
    """You subtract the largest number of the whole batch: exp is 0 in a row far below it. Each row has its own
    maximum, max(axis=1, keepdims=True).""": {SHIFT: " - logits.max()"},
}
PARTS = [
    Part(
        "cross_entropy", right, cases, ("the loss",),
        mistakes(cross_entropy, {
            **OVERFLOW,
            """exp overflows for large logits. Subtract the largest number of each row first, and then do not take the
            logarithm of p.""": {SHIFT: "", LOG_P: LOG_OF_P},
            """p underflows to 0 for a very unlikely label, and log 0 is infinite. Compute log p as a difference, without
            p.""": {LOG_P: LOG_OF_P},
            **WHOLE_BATCH,
            """log_p[:, labels] takes the columns of all labels in every row, an (N, N) array. Take one element of each row:
            log_p[np.arange(N), labels].""": {AT: "[:, labels]"},
            "It is the sum over the rows. The loss is their mean.": {"].mean()": "].sum()"},
            "It is the mean over all N * C elements. Only the N rows count.": {"].mean()": "].sum() / logits.size"},
            "Its sign is wrong: the logarithm of a probability is negative, and the loss is minus that.": {"-log_p": "log_p"},
            **WRONG_AXIS,
            "You subtracted the maximum inside the logarithm only; subtract it from the logit at the label too.":
                {"log_p = shifted": "log_p = logits"},
        }),
    ),
    Part(
        "cross_entropy_backward", right_backward, backward_cases, ("the gradient of the logits",),
        mistakes(cross_entropy_backward, {
            "It is not divided by N. The loss is a mean over the rows.": {" / len(labels)": ""},
            "It is p without the 1 that is subtracted at the label.": {f"p{AT} -= 1": "pass"},
            "Its sign is wrong. It is p minus 1 at the label, not the reverse.": {"g * p": "-g * p"},
            "It is divided by N * C. The mean is over the N rows only.": {"/ len(labels)": "/ logits.size"},
            **WRONG_AXIS, **OVERFLOW, **WHOLE_BATCH,
            """p[:, labels] takes the columns of all labels in every row. The 1 is subtracted from one element of each row:
            p[np.arange(N), labels].""": {f"p{AT}": "p[:, labels]"},
            "It does not depend on g, and is right only if g = 1. The cotangent multiplies the gradient.": {"g * p": "p"},
        }),
    ),
]  # fmt: skip
