"""One step of the LSTM with layer normalization."""

import numpy as np

import minigrad as mg
from minigrad.learn.checking import Part, gradients
from minigrad.learn.solutions.ln_lstm import EPS, normalize, normalize_backward, sigmoid

HINTS = (
    "np.split(a, 4, axis=-1) gives the four blocks. i, f and o go through sigmoid, g through tanh.",
    """Backward, first the last line. With r = tanh(LN(c')) and o after its sigmoid: the gradient of o is g_h * r, that of r is
    g_h * o, and that of LN(c') is g_h * o * (1 - r**2).""",
    """Call d the gradient of c': d = g_c + normalize_backward(g_h * o * (1 - r**2), c'). It goes to f as d * c, to c as d * f,
    to i as d * g and to g as d * i, where i, f, g and o are the gates after their activations.""",
    """Then through the activations: times i * (1 - i) for the sigmoid of i, the same for f and o, and 1 - g**2 for the tanh of
    g. Concatenate the four in the order i, f, g, o: that is the gradient of a, and summed over the rows that of b.""",
    """Both norms get the gradient of a: normalize_backward(da, x @ w_x.T), then the linear layer of stage 3. The same with
    h and w_h.""",
)
NAMES = ("x", "h", "c", "w_x", "w_h", "b")


def cases(draw):
    # LN of two numbers is always nearly -1 and 1: with three units, every mistake shows.
    for n, i, h in ((1, 2, 3), (2, 2, 3), (draw.size(2, 4), draw.size(2, 4), draw.size(3, 5))):
        arrays = draw(n, i), draw(n, h), draw(n, h), draw(4 * h, i), draw(4 * h, h), draw(4 * h)
        yield {name: array / 4 for name, array in zip(NAMES, arrays, strict=True)}


def backward_cases(draw):
    for case in cases(draw):
        yield {"g_h": draw(*case["h"].shape), "g_c": draw(*case["h"].shape), **case}


def tensors(x, h, c, w_x, w_h, b):
    width = h.shape[-1]
    i, f, g, o = mg.split(
        mg.layer_norm(x @ w_x.T, 4 * width, eps=EPS) + mg.layer_norm(h @ w_h.T, 4 * width, eps=EPS) + b, 4, axis=-1
    )
    c = mg.sigmoid(f) * c + mg.sigmoid(i) * mg.tanh(g)
    return mg.sigmoid(o) * mg.tanh(mg.layer_norm(c, width, eps=EPS)), c


def right(*arrays):
    return tuple(y.numpy() for y in tensors(*map(mg.tensor, arrays)))


def right_backward(g_h, g_c, *arrays):
    return gradients(tensors, (g_h, g_c), *arrays)


def linear(x, h, w_x, w_h, b):
    return normalize(x @ w_x.T) + normalize(h @ w_h.T) + b


def forward(sums=linear, order="ifgo", squash=np.tanh, read=normalize, carried=lambda c: c, axis=-1):
    """A step with one part of it replaced."""

    def answer(x, h, c, w_x, w_h, b):
        blocks = dict(zip(order, np.split(sums(x, h, w_x, w_h, b), 4, axis=axis), strict=True))
        new = sigmoid(blocks["f"]) * c + sigmoid(blocks["i"]) * squash(blocks["g"])
        return sigmoid(blocks["o"]) * np.tanh(read(new)), carried(new)

    return answer


def each_gate(x, h, w_x, w_h, b):
    return np.concatenate([normalize(u) for u in np.split(x @ w_x.T, 4, -1)], -1) + np.concatenate(
        [normalize(u) for u in np.split(h @ w_h.T, 4, -1)], -1
    ) + b  # fmt: skip


def backward(
    cell=lambda g_c, through: g_c + through,
    norm=lambda g, u, a: normalize_backward(g, u),
    order="ifgo",
    slope_i=lambda s: s * (1 - s),
    slope_o=lambda s: s * (1 - s),
    of_i=lambda d, c, g: d * g,
    slope_g=lambda s: 1 - s**2,
    slope_r=lambda r, new: 1 - r**2,
    norm_c=normalize_backward,
    of_f=lambda d, c, new, g: d * c,
    of_c=lambda d, f: d * f,
    of_b=lambda da, dx, dh: da.sum(axis=0),
    read=normalize,
):
    """A backward pass with one part of it replaced."""

    def answer(g_h, g_c, x, h, c, w_x, w_h, b):
        a = linear(x, h, w_x, w_h, b)
        i, f, g, o = np.split(a, 4, axis=-1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        new = f * c + i * g
        r = np.tanh(read(new))
        d = cell(g_c, norm_c(g_h * o * slope_r(r, new), new))
        parts = {
            "i": of_i(d, c, g) * slope_i(i), "f": of_f(d, c, new, g) * slope_i(f), "g": d * i * slope_g(g),
            "o": g_h * r * slope_o(o),
        }  # fmt: skip
        da = np.concatenate([parts[name] for name in order], axis=-1)
        dx, dh = norm(da, x @ w_x.T, a), norm(da, h @ w_h.T, a)
        return dx @ w_x, dh @ w_h, of_c(d, f), dx.T @ x, dh.T @ h, of_b(da, dx, dh)

    return answer


PARTS = [
    Part(
        "step", right, cases, ("the new h", "the new c"),
        {
            """The products are added before they are normalized. Each has its own norm: LN(x w_x^T) + LN(h
            w_h^T).""": forward(lambda x, h, w_x, w_h, b: normalize(x @ w_x.T + h @ w_h.T) + b),
            "b is inside a norm. It is added to the two normalized products.": forward(
                lambda x, h, w_x, w_h, b: normalize(x @ w_x.T) + normalize(h @ w_h.T + b)
            ),
            "b is inside a single norm. Each product has its own norm, and b is added to both.": forward(
                lambda x, h, w_x, w_h, b: normalize(x @ w_x.T + h @ w_h.T + b)
            ),
            "w_x has a row for each of the 4H numbers, so the products are x @ w_x.T and h @ w_h.T.": forward(
                lambda x, h, w_x, w_h, b: normalize(x @ w_x) + normalize(h @ w_h) + b
            ),
            "The four blocks are columns: np.split(a, 4, axis=-1).": forward(axis=0),
            "The products are not normalized.": forward(lambda x, h, w_x, w_h, b: x @ w_x.T + h @ w_h.T + b),
            "Each gate is normalized on its own. The statistics are over all 4H numbers of a product.": forward(each_gate),
            "The gates are in another order: you read i, f, o, g. Here, as in PyTorch, it is i, f, g, o.": forward(order="ifog"),
            "The gates are in another order: you read f, i, g, o. Here, as in PyTorch, it is i, f, g, o.": forward(order="figo"),
            "The candidate g goes through sigmoid. It goes through tanh, so that it can be negative.": forward(squash=sigmoid),
            "h' reads c' without a norm: h' = sigmoid(o) * tanh(LN(c')).": forward(read=lambda c: c),
            "The new c is normalized. Only h' reads LN(c'); c' is carried as it is.": forward(carried=normalize),
        },
    ),
    Part(
        "step_backward", right_backward, backward_cases, tuple(f"the gradient of {name}" for name in NAMES),
        {
            "g_c is not used. c' goes to the next step too, and g_c is what comes back from there.": backward(
                lambda g_c, through: through
            ),
            "The path from h' back to c' is missing: h' reads tanh(LN(c')).": backward(lambda g_c, through: g_c),
            "The backward pass of the norms of the products is missing: use normalize_backward twice.": backward(
                norm=lambda g, u, a: g
            ),
            """normalize_backward(g, u) takes what went into the norm. That is x w_x^T for one and h w_h^T for the other, not
            a.""": backward(norm=lambda g, u, a: normalize_backward(g, a)),
            """normalize_backward(g, c') takes what went into the norm, c', not LN(c').""": backward(
                norm_c=lambda g, c: normalize_backward(g, normalize(c))
            ),
            """The way from h' back to c' leaves LN out: it has the slope of tanh(c'). It is that of tanh(LN(c')), and then
            normalize_backward.""": backward(norm_c=lambda g, c: g, slope_r=lambda r, new: 1 - np.tanh(new) ** 2),
            "The backward pass of LN(c') is missing.": backward(norm_c=lambda g, a: g),
            "h' reads c' without a norm: h' = sigmoid(o) * tanh(LN(c')).": backward(norm_c=lambda g, a: g, read=lambda c: c),
            """The gradient of b has passed the norms. b is added after them: it is the sum of the gradient of a over the
            rows.""": backward(of_b=lambda da, dx, dh: (dx + dh).sum(axis=0)),
            "The slope of tanh(LN(c')) is missing: 1 - tanh(LN(c'))**2.": backward(slope_r=lambda r, new: 1.0),
            """The gradient of b is that of a, summed over the rows: b was added to each of them.""": backward(
                of_b=lambda da, dx, dh: da
            ),
            "The slope of the sigmoids is missing: s * (1 - s).": backward(slope_i=lambda s: 1.0, slope_o=lambda s: 1.0),
            "The slope of the sigmoid of o is missing: o * (1 - o).": backward(slope_o=lambda s: 1.0),
            """The slope of a sigmoid is s * (1 - s), with the s that has come out of it; you take the sigmoid of s once
            more.""": backward(
                slope_i=lambda s: sigmoid(s) * (1 - sigmoid(s)), slope_o=lambda s: sigmoid(s) * (1 - sigmoid(s))
            ),
            """The gradients of i and f have each other's factor: i was multiplied by g, and f by the old c.""": backward(
                of_i=lambda d, c, g: d * c, of_f=lambda d, c, new, g: d * g
            ),
            "The slope of the candidate's tanh is missing: 1 - g**2.": backward(slope_g=lambda s: 1.0),
            "The candidate g has the slope of a sigmoid. It went through tanh: 1 - g**2.": backward(
                slope_g=lambda s: s * (1 - s)
            ),
            "The gradients of the gates are in another order: i, f, o, g. It has to be i, f, g, o.": backward(order="ifog"),
            "The gradients of the gates are in another order: f, i, g, o. It has to be i, f, g, o.": backward(order="figo"),
            "The forget gate was multiplied by the old c; you use the new one.": backward(of_f=lambda d, c, new, g: d * new),
            "c was multiplied by the forget gate on its way to c'; that factor is missing.": backward(of_c=lambda d, f: d),
        },
    ),
]  # fmt: skip
