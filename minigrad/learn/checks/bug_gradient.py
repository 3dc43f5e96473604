"""Find the bug: a layer norm in NumPy whose result is not connected to its inputs."""

import minigrad as mg
from minigrad.learn.checking import Part
from minigrad.learn.checks.layer_norm import backward as formula
from minigrad.learn.checks.layer_norm import cases, constants, right
from minigrad.learn.solutions.bug_gradient import fast

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


def numpy(*tensors):
    return (t.detach().numpy() for t in tensors)


def dropped(x, weight, bias, eps):
    return mg.tensor(fast(*numpy(x, weight, bias), eps))


def with_backward(backward):
    """The right values and this backward function, as one operation."""

    class Norm(mg.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, eps):
            ctx.save_for_backward(x, weight)
            ctx.eps = eps
            return mg.tensor(fast(*numpy(x, weight, bias), eps))

        @staticmethod
        def backward(ctx, g):
            return (*backward(g, *ctx.saved_tensors, ctx.eps), None)

    return lambda x, weight, bias, eps: Norm.apply(x, weight, bias, eps)


def only_affine(x, weight, bias, eps):
    n = mg.tensor(fast(x.detach().numpy(), 1.0, 0.0, eps))
    return n * weight + bias


def straight_through(x, weight, bias, eps):
    return x + (dropped(x, weight, bias, eps) - x).detach()


def once(g, x, weight, eps):
    return [mg.tensor(grad.numpy()) for grad in formula()(*(t.detach() for t in (g, x, weight)), eps)]


PARTS = [
    Part(
        "layer_norm", right, cases, ("y",),
        {
            """No gradient arrives at x, weight and bias, and nothing complains: the tape does not lead from y back to
            them. This is the bug.""": dropped,
            """weight and bias train now, but x still gets nothing: the normalized array is a new tensor without a
            history.""": only_affine,
            "The gradient passes through as if the norm were not there.": straight_through,
            """backward treats the mean and the variance as constants.""": with_backward(
                formula(lambda g, u, n, s, w: u / s)
            ),
            """backward leaves out the variance: the term n * mean(u * n) is missing.""": with_backward(
                formula(lambda g, u, n, s, w: (u - mg.mean(u, axis=-1, keepdims=True)) / s)
            ),
            """The gradients are right, but cannot be differentiated again: backward leaves the tape. Use tensor operations
            in it.""": with_backward(once),
            """The gradients are right, but sqrt(var + eps) in backward is cut off from the tape, and their derivatives are
            wrong. Compute it from x.""": with_backward(constants),
        },
        order=2,
    )
]  # fmt: skip
