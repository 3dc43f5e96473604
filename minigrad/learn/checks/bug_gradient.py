"""Find the bug: a layer norm in NumPy whose result is not connected to its inputs."""

from minigrad.learn.checking import Part, mistakes
from minigrad.learn.checks.layer_norm import cases, right
from minigrad.learn.stages.bug_gradient import layer_norm

HINTS = (
    """mg.tensor(...) of an array makes a new tensor without a history. The tape has not seen what led from x to this
    array.""",
    """In forward, compute mg.tensor(fast(x.detach().numpy(), ...)): nothing is recorded there, and backward says what the gradient
    is instead.""",
    """backward returns four values, one for each argument of forward: the gradients of x, weight and bias as in the stage
    layer_norm, and None for eps.""",
    """If only the second derivative is wrong, something in backward is an array or a number, or was detached. Compute all
    of it from x, weight and g with tensor operations.""",
)


APPLY, MEAN = "FastLayerNorm.apply(x, weight, bias, eps)", "u.mean(axis=-1, keepdims=True)"
PRODUCT = "n * (u * n).mean(axis=-1, keepdims=True)"
PARTS = [
    Part(
        "layer_norm", right, cases, ("y",),
        mistakes(layer_norm, {
            """No gradient arrives at x, weight and bias, and nothing complains: the tape does not lead from y back to
            them. This is the bug.""": {APPLY: "mg.tensor(fast(*(t.detach().numpy() for t in (x, weight, bias)), eps))"},
            """weight and bias train now, but x still gets nothing: the normalized array is a new tensor without a
            history.""": {APPLY: "mg.tensor(fast(x.detach().numpy(), 1.0, 0.0, eps)) * weight + bias"},
            "The gradient passes through as if the norm were not there.": {APPLY: f"x + ({APPLY} - x).detach()"},
            "backward treats the mean and the variance as constants.": {f" - {MEAN} - {PRODUCT}": ""},
            "backward leaves out the variance: the term n * mean(u * n) is missing.": {f" - {PRODUCT}": ""},
            """The gradients are right, but cannot be differentiated again: backward leaves the tape. Use tensor operations
            in it.""": {"x, weight = ctx.saved_tensors": "x, weight, g = (t.detach() for t in (*ctx.saved_tensors, g))"},
            """The gradients are right, but sqrt(var + eps) in backward is cut off from the tape, and their derivatives are
            wrong. Compute it from x.""": {"+ ctx.eps)": "+ ctx.eps).detach()"},
        }),
        order=2,
    )
]  # fmt: skip
