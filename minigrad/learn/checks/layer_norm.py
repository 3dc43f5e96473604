"""Layer normalization with tensors: its value, its gradients, and the derivatives of these."""

import minigrad as mg
from minigrad.learn.checking import Part

HINTS = (
    """Keep the axis that you average over: x.mean(axis=-1, keepdims=True) has the shape (..., 1), so it can be subtracted
    from x.""",
    """The variance is the mean of the squares of x - mean: divide by D, not by D - 1. eps is added to the variance, before
    the root.""",
    """bias is added in every row, so its gradient is the sum of g over all axes but the last. For weight it is the sum of
    g * n. Both have the shape (D,): reshape(-1, D) first.""",
    """For x, compute n and u = g * weight. Both means in the formula are over the last axis, with keepdims. Do not forget
    the division by sqrt(var + eps) at the end.""",
)


FAR = 99e6  # a mean whose square has no digits left for the variance


def shapes(draw):
    for lead in ((1,), (2,), (2, 2), (), (3,)):
        yield lead, draw.size(2, 5) + (lead == (3,))


def cases(draw):
    for lead, d in shapes(draw):
        yield {"x": draw(*lead, d), "weight": draw(d), "bias": draw(d), "eps": 0.25 if draw.small else 1e-5}
    if draw.small:
        yield {"x": FAR + draw(3, 2), "weight": draw(2), "bias": draw(2), "eps": 0.25}


def backward_cases(draw):
    for lead, d in shapes(draw):
        yield {"g": draw(*lead, d), "x": draw(*lead, d), "weight": draw(d), "eps": 0.25 if draw.small else 1e-5}
    if draw.small:
        yield {"g": draw(3, 2), "x": FAR + draw(3, 2), "weight": draw(2), "eps": 0.25}


def right(x, weight, bias, eps):
    return mg.layer_norm(x, x.shape[-1], weight, bias, eps)


def right_backward(g, x, weight, eps):
    with mg.enable_grad():
        bias = mg.zeros_like(weight, requires_grad=True)
        y = mg.layer_norm(x, x.shape[-1], weight, bias, eps)
        return mg.grad(y, [x, weight, bias], g, create_graph=True)


def mean(x, axis=-1):
    return x.mean(axis=axis, keepdims=True)


def spread(x, axis=-1):
    return mean((x - mean(x, axis)) ** 2, axis)


def of_squares(x, axis=-1):
    return mean(x * x, axis) - mean(x, axis) ** 2


def forward(axis=-1, fewer=0, root=lambda var, eps: mg.sqrt(var + eps), center=mean, cut=lambda x: x, variance=spread):
    """A layer norm with one part of it replaced."""

    def answer(x, weight, bias, eps):
        d = x - cut(center(x, axis))
        count = x.shape[-1]
        var = cut(variance(x, axis) * (count / max(count - fewer, 1e-9)))
        return d / root(var, eps) * weight + bias

    return answer


def axis_of_rows(x, weight, bias, eps):
    return forward(axis=0)(x, weight, bias, eps)


def flat(x, weight, bias, eps):
    return (x - x.mean(axis=-1)) / mg.sqrt(x.var(axis=-1) + eps) * weight + bias


def whole(x, weight, bias, eps):
    d = x - x.mean()
    return d / mg.sqrt((d * d).mean() + eps) * weight + bias


def backward(
    of_x=None, of_weight=None, of_bias=None, fewer=0, root=lambda var, eps: mg.sqrt(var + eps), variance=spread
):
    """A backward pass with one gradient replaced; the replacement gets g, u, n, the root, x, and the formula's parts."""

    def answer(g, x, weight, eps):
        d, width = x - mean(x), x.shape[-1]
        s = root(variance(x) * (width / max(width - fewer, 1e-9)), eps)
        n = d / s
        u = g * weight
        dx = (u - mean(u) - n * mean(u * n)) / s if of_x is None else of_x(g, u, n, s, weight)
        dw = (g * n).reshape(-1, width).sum(axis=0) if of_weight is None else of_weight(g, n, x, width)
        db = g.reshape(-1, width).sum(axis=0) if of_bias is None else of_bias(g, width)
        return dx, dw, db

    return answer


def constants(g, x, weight, eps):
    """The right values, cut off from the tape on the way."""
    d = x - mean(x)
    s = mg.sqrt(mean(d * d) + eps).detach()
    n = d / s
    u, width = g * weight, x.shape[-1]
    return (
        (u - mean(u) - n * mean(u * n)) / s, (g * n).reshape(-1, width).sum(axis=0), g.reshape(-1, width).sum(axis=0)
    )  # fmt: skip


PARTS = [
    Part(
        "layer_norm", right, cases, ("y",),
        {
            """The variance is divided by D - 1. Layer normalization uses the biased variance: divide by
            D.""": forward(fewer=1),
            """The variance is a sum: divide the sum of the squares by D.""": forward(
                variance=lambda x, axis: ((x - mean(x, axis)) ** 2).sum(axis=axis, keepdims=True)
            ),
            """The variance is E[x^2] - E[x]^2. If the mean is large, both are nearly equal, and rounding is all that is left.
            Subtract the mean first, then square.""": forward(variance=of_squares),
            """eps is outside the root: you divide by sqrt(var) + eps. It belongs inside: sqrt(var + eps).""": forward(
                root=lambda var, eps: mg.sqrt(var) + eps
            ),
            "eps is missing: you divide by sqrt(var).": forward(root=lambda var, eps: mg.sqrt(var)),
            "eps is squared: you divide by sqrt(var + eps**2).": forward(root=lambda var, eps: mg.sqrt(var + eps * eps)),
            "The root is missing: you divide by var + eps.": forward(root=lambda var, eps: var + eps),
            """The mean and the variance are over the first axis, as in batch normalization. Layer normalization takes
            them over the last one.""": axis_of_rows,
            """The mean and the variance have lost their last axis, so that broadcasting lines them up with the columns. Keep
            it: keepdims=True.""": flat,
            """The mean and the variance are over all elements. Each row has its own: axis=-1, keepdims=True.""": whole,
            "The mean is not subtracted. That is RMSNorm with a variance.": forward(center=lambda x, axis: 0.0 * x),
            "weight and bias have no effect: y = n * weight + bias.": lambda x, weight, bias, eps: forward()(
                x, 1.0 + 0.0 * weight, 0.0 * bias, eps
            ),
            "weight has an effect, but bias has none: y = n * weight + bias.": lambda x, weight, bias, eps: forward()(
                x, weight, 0.0 * bias, eps
            ),
            "y is n * (weight + bias). The bias is added after the product.": lambda x, weight, bias, eps: forward()(
                x, weight + bias, 0.0 * bias, eps
            ),
            """The value is right, but the mean and the variance are cut off from the tape. They depend on x, and their
            gradients are part of that of x.""": forward(cut=lambda x: x.detach()),
        },
        order=1,
    ),
    Part(
        "layer_norm_backward", right_backward, backward_cases,
        ("the gradient of x", "the gradient of weight", "the gradient of bias"),
        {
            """It treats the mean and the variance as constants. They depend on x as well; the terms mean(u) and
            n * mean(u * n) are missing.""": backward(lambda g, u, n, s, w: u / s),
            """It treats the variance as a constant: the term n * mean(u * n) is missing.""": backward(
                lambda g, u, n, s, w: (u - mean(u)) / s
            ),
            "It treats the mean as a constant: the term mean(u) is missing.": backward(
                lambda g, u, n, s, w: (u - n * mean(u * n)) / s
            ),
            "weight is missing: u is g * weight.": backward(lambda g, u, n, s, w: (g - mean(g) - n * mean(g * n)) / s),
            """weight is multiplied at the end. It differs from element to element and belongs inside the means: u = g *
            weight.""": backward(lambda g, u, n, s, w: w * (g - mean(g) - n * mean(g * n)) / s),
            "The division by sqrt(var + eps) is missing.": backward(lambda g, u, n, s, w: u - mean(u) - n * mean(u * n)),
            """It divides by var + eps. The derivative of n has the root of that, once.""": backward(
                lambda g, u, n, s, w: (u - mean(u) - n * mean(u * n)) / (s * s)
            ),
            "There are sums where the formula has means: divide both by D.": backward(
                lambda g, u, n, s, w: (u - u.sum(axis=-1, keepdims=True) - n * (u * n).sum(axis=-1, keepdims=True)) / s
            ),
            """Your gradient is what you get if the variance is divided by D - 1. Divide by D.""": backward(fewer=1),
            """The variance is E[x^2] - E[x]^2. If the mean is large, both are nearly equal, and rounding is all that is left.
            Subtract the mean first, then square.""": backward(variance=of_squares),
            "eps is outside the root: sqrt(var + eps), not sqrt(var) + eps.": backward(
                root=lambda var, eps: mg.sqrt(var) + eps
            ),
            "eps is missing in the root.": backward(root=lambda var, eps: mg.sqrt(var)),
            """It is 0, or nearly. That is the gradient for a cotangent of ones and a weight of ones, the one case in which
            everything cancels. Use g.""": backward(lambda g, u, n, s, w: 0.0 * (u + n)),
            """It does not depend on g, and is right only if g is all ones.""": backward(
                lambda g, u, n, s, w: (w - mean(w) + 0.0 * g - n * mean(w * n)) / s
            ),
            "It is the sum of g * x. weight multiplies n, the normalized x.": backward(
                of_weight=lambda g, n, x, width: (g * x).reshape(-1, width).sum(axis=0)
            ),
            "It is the sum of n: the cotangent g is missing. You would not notice if g were all ones.": backward(
                of_weight=lambda g, n, x, width: (n + 0.0 * g).reshape(-1, width).sum(axis=0)
            ),
            "It is g * n, without the sum over the rows. All rows share the weight.": backward(
                of_weight=lambda g, n, x, width: g * n
            ),
            "It is the mean over the rows. Their contributions add up.": backward(
                of_weight=lambda g, n, x, width: (g * n).reshape(-1, width).mean(axis=0)
            ),
            "It is summed over the first axis only. With more axes in front, sum over all of them.": backward(
                of_weight=lambda g, n, x, width: (g * n).sum(axis=0)
            ),
            """The bias gradient is summed over the first axis only. With more axes in front, sum over all of
            them.""": backward(of_bias=lambda g, width: g.sum(axis=0)),
            "It is g, without the sum over the rows. All rows share the bias.": backward(of_bias=lambda g, width: g),
            "It is the mean of g over the rows. Their contributions add up.": backward(
                of_bias=lambda g, width: g.reshape(-1, width).mean(axis=0)
            ),
            """The gradients are right, but their derivatives are not: sqrt(var + eps) is cut off from the tape. Use
            tensor operations only.""": constants,
        },
        order=1,
    ),
]  # fmt: skip
