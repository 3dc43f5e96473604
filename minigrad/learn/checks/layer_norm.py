"""Layer normalization with tensors: its value, its gradients, and the derivatives of these."""

import minigrad as mg
from minigrad.learn.checking import Part, mistakes
from minigrad.learn.stages.layer_norm import layer_norm, layer_norm_backward

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


VARIANCE, AT_LAST = "(centered * centered).mean(axis=-1, keepdims=True)", "(axis=-1, keepdims=True)"
MEAN, PRODUCT = "u.mean(axis=-1, keepdims=True)", "n * (u * n).mean(axis=-1, keepdims=True)"
DX, OF_WEIGHT, OF_BIAS = f"u - {MEAN} - {PRODUCT}", "(g * n).reshape(-1, width)", "g.reshape(-1, width)"
OUTSIDE = {"mg.sqrt": "(mg.sqrt", " + eps)": ") + eps)"}
UNBIASED = {VARIANCE: "(centered * centered).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1)"}
SQUARES = {
    """The variance is E[x^2] - E[x]^2. If the mean is large, both are nearly equal, and rounding is all that is left.
    Subtract the mean first, then square.""": {VARIANCE: f"(x * x).mean{AT_LAST} - x.mean{AT_LAST} ** 2"},
}
PARTS = [
    Part(
        "layer_norm", right, cases, ("y",),
        mistakes(layer_norm, {
            "The variance is divided by D - 1. Layer normalization uses the biased variance: divide by D.": UNBIASED,
            "The variance is a sum: divide the sum of the squares by D.": {VARIANCE: VARIANCE.replace("mean", "sum")},
            **SQUARES,
            "eps is outside the root: you divide by sqrt(var) + eps. It belongs inside: sqrt(var + eps).": OUTSIDE,
            "eps is missing: you divide by sqrt(var).": {" + eps": ""},
            "eps is squared: you divide by sqrt(var + eps**2).": {"+ eps": "+ eps * eps"},
            "The root is missing: you divide by var + eps.": {"mg.sqrt": ""},
            """The mean and the variance are over the first axis, as in batch normalization. Layer normalization takes
            them over the last one.""": {"axis=-1": "axis=0"},
            """The mean and the variance have lost their last axis, so that broadcasting lines them up with the columns. Keep
            it: keepdims=True.""": {VARIANCE: "x.var(axis=-1)", "x.mean(axis=-1, keepdims=True)": "x.mean(axis=-1)"},
            "The mean and the variance are over all elements. Each row has its own: axis=-1, keepdims=True.": {AT_LAST: "()"},
            "The mean is not subtracted. That is RMSNorm with a variance.": {"return centered * scale": "return x * scale"},
            "weight and bias have no effect: y = n * weight + bias.": {"n * weight + bias": "n"},
            "weight has an effect, but bias has none: y = n * weight + bias.": {"n * weight + bias": "n * weight"},
            "y is n * (weight + bias). The bias is added after the product.": {"n * weight + bias": "n * (weight + bias)"},
            """The value is right, but the mean and the variance are cut off from the tape. They depend on x, and their
            gradients are part of that of x.""": {AT_LAST: f"{AT_LAST}.detach()"},
        }),
        order=1,
    ),
    Part(
        "layer_norm_backward", right_backward, backward_cases,
        ("the gradient of x", "the gradient of weight", "the gradient of bias"),
        mistakes(layer_norm_backward, {
            """It treats the mean and the variance as constants. They depend on x as well; the terms mean(u) and
            n * mean(u * n) are missing.""": {DX: "u"},
            "It treats the variance as a constant: the term n * mean(u * n) is missing.": {f" - {PRODUCT}": ""},
            "It treats the mean as a constant: the term mean(u) is missing.": {f" - {MEAN}": ""},
            "weight is missing: u is g * weight.": {"u = g * weight": "u = g"},
            """weight is multiplied at the end. It differs from element to element and belongs inside the means: u = g *
            weight.""": {"u = g * weight": "u = g", f"{DX}) * scale": f"{DX}) * scale * weight"},
            "The division by sqrt(var + eps) is missing.": {f"{DX}) * scale": f"{DX})"},
            "It divides by var + eps. The derivative of n has the root of that, once.":
                {f"{DX}) * scale": f"{DX}) * scale * scale"},
            "There are sums where the formula has means: divide both by D.": {DX: DX.replace("mean", "sum")},
            "Your gradient is what you get if the variance is divided by D - 1. Divide by D.": UNBIASED,
            **SQUARES,
            "eps is outside the root: sqrt(var + eps), not sqrt(var) + eps.": OUTSIDE,
            "eps is missing in the root.": {" + eps": ""},
            """It is 0, or nearly. That is the gradient for a cotangent of ones and a weight of ones, the one case in which
            everything cancels. Use g.""": {"dx = ": "dx = 0.0 * "},
            "It does not depend on g, and is right only if g is all ones.": {"u = g * weight": "u = weight + 0.0 * g"},
            "It is the sum of g * x. weight multiplies n, the normalized x.": {OF_WEIGHT: "(g * x).reshape(-1, width)"},
            "It is the sum of g * (x - mean). weight multiplies n, which is divided by sqrt(var + eps) as well.":
                {OF_WEIGHT: "(g * (n / scale)).reshape(-1, width)"},
            "It is the sum of n: the cotangent g is missing. You would not notice if g were all ones.":
                {OF_WEIGHT: "n.reshape(-1, width)"},
            "It is g * n, without the sum over the rows. All rows share the weight.": {f"{OF_WEIGHT}.sum(axis=0)": "g * n"},
            "It is the mean over the rows. Their contributions add up.": {f"{OF_WEIGHT}.sum": f"{OF_WEIGHT}.mean"},
            "It is summed over the first axis only. With more axes in front, sum over all of them.": {OF_WEIGHT: "(g * n)"},
            "The bias gradient is summed over the first axis only. With more axes in front, sum over all of them.": {OF_BIAS: "g"},
            "It is g, without the sum over the rows. All rows share the bias.": {f"{OF_BIAS}.sum(axis=0)": "g"},
            "It is the mean of g over the rows. Their contributions add up.": {f"{OF_BIAS}.sum": f"{OF_BIAS}.mean"},
            """The gradients are right, but their derivatives are not: sqrt(var + eps) is cut off from the tape. Use
            tensor operations only.""": {"+ eps)": "+ eps).detach()"},
        }),
        order=1,
    ),
]  # fmt: skip
