"""One step of the LSTM with layer normalization."""

import minigrad as mg
from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.stages.ln_lstm import EPS, step, step_backward

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


SUM, READ = "normalize(x @ w_x.T) + normalize(h @ w_h.T) + b", "normalize_backward(g_h * o * (1 - read**2), new)"
UNNORMALIZED = "h' reads c' without a norm: h' = sigmoid(o) * tanh(LN(c'))."
SLOPES = {name: f" * {name} * (1 - {name})" for name in "ifo"}
PARTS = [
    Part(
        "step", right, cases, ("the new h", "the new c"),
        mistakes(step, {
            "The products are added before they are normalized. Each has its own norm: LN(x w_x^T) + LN(h w_h^T).":
                {SUM: "normalize(x @ w_x.T + h @ w_h.T) + b"},
            "b is inside a norm. It is added to the two normalized products.": {"w_h.T) + b": "w_h.T + b)"},
            "b is inside a single norm. Each product has its own norm, and b is added to both.":
                {SUM: "normalize(x @ w_x.T + h @ w_h.T + b)"},
            "w_x has a row for each of the 4H numbers, so the products are x @ w_x.T and h @ w_h.T.":
                {"w_x.T": "w_x", "w_h.T": "w_h"},
            "The four blocks are columns: np.split(a, 4, axis=-1).": {"np.split(a, 4, axis=-1)": "np.split(a, 4, axis=0)"},
            "The products are not normalized.": {SUM: "x @ w_x.T + h @ w_h.T + b"},
            "Each gate is normalized on its own. The statistics are over all 4H numbers of a product.":
                {SUM: "sum(np.hstack([normalize(u) for u in np.split(a, 4, -1)]) for a in (x @ w_x.T, h @ w_h.T)) + b"},
            "The gates are in another order: you read i, f, o, g. Here, as in PyTorch, it is i, f, g, o.":
                {"i, f, g, o = np": "i, f, o, g = np"},
            "The gates are in another order: you read f, i, g, o. Here, as in PyTorch, it is i, f, g, o.":
                {"i, f, g, o = np": "f, i, g, o = np"},
            "The candidate g goes through sigmoid. It goes through tanh, so that it can be negative.": {"np.tanh(g)": "sigmoid(g)"},
            UNNORMALIZED: {"normalize(c)": "c"},
            "The new c is normalized. Only h' reads LN(c'); c' is carried as it is.": {"(c)), c": "(c)), normalize(c)"},
        }),
    ),
    Part(
        "step_backward", right_backward, backward_cases, tuple(f"the gradient of {name}" for name in NAMES),
        mistakes(step_backward, {
            "g_c is not used. c' goes to the next step too, and g_c is what comes back from there.": {"g_c + ": ""},
            "The path from h' back to c' is missing: h' reads tanh(LN(c')).": {f" + {READ}": ""},
            "The backward pass of the norms of the products is missing: use normalize_backward twice.":
                {"normalize_backward(da, x @ w_x.T)": "da", "normalize_backward(da, h @ w_h.T)": "da"},
            """normalize_backward(g, u) takes what went into the norm. That is x w_x^T for one and h w_h^T for the other, not
            a.""": {"(da, x @ w_x.T)": f"(da, {SUM})", "(da, h @ w_h.T)": f"(da, {SUM})"},
            "normalize_backward(g, c') takes what went into the norm, c', not LN(c').": {", new)": ", normalize(new))"},
            """The way from h' back to c' leaves LN out: it has the slope of tanh(c'). It is that of tanh(LN(c')), and then
            normalize_backward.""": {READ: "g_h * o * (1 - np.tanh(new) ** 2)"},
            "The backward pass of LN(c') is missing.": {READ: "g_h * o * (1 - read**2)"},
            UNNORMALIZED: {READ: "g_h * o * (1 - read**2)", "normalize(new)": "new"},
            """The gradient of b has passed the norms. b is added after them: it is the sum of the gradient of a over the
            rows.""": {"da.sum": "(dx + dh).sum"},
            "The slope of tanh(LN(c')) is missing: 1 - tanh(LN(c'))**2.": {" * (1 - read**2)": ""},
            "The gradient of b is that of a, summed over the rows: b was added to each of them.": {"da.sum(axis=0)": "da"},
            "The slope of the sigmoids is missing: s * (1 - s).": dict.fromkeys(SLOPES.values(), ""),
            "The slope of the sigmoid of o is missing: o * (1 - o).": {SLOPES["o"]: ""},
            """The slope of a sigmoid is s * (1 - s), with the s that has come out of it; you take the sigmoid of s once
            more.""": {slope: slope.replace(name, f"sigmoid({name})") for name, slope in SLOPES.items()},
            "The gradients of i and f have each other's factor: i was multiplied by g, and f by the old c.":
                {"d_new * g * i": "d_new * c * i", "d_new * c * f": "d_new * g * f"},
            "The slope of the candidate's tanh is missing: 1 - g**2.": {" * (1 - g**2)": ""},
            "The candidate g has the slope of a sigmoid. It went through tanh: 1 - g**2.": {"(1 - g**2)": "g * (1 - g)"},
            "The gradients of the gates are in another order: i, f, o, g. It has to be i, f, g, o.":
                {"d_new * i * (1 - g**2), g_h * read * o * (1 - o)": "g_h * read * o * (1 - o), d_new * i * (1 - g**2)"},
            "The gradients of the gates are in another order: f, i, g, o. It has to be i, f, g, o.":
                {"d_new * g * i * (1 - i), d_new * c * f * (1 - f)": "d_new * c * f * (1 - f), d_new * g * i * (1 - i)"},
            "The forget gate was multiplied by the old c; you use the new one.": {"d_new * c * f": "d_new * new * f"},
            "c was multiplied by the forget gate on its way to c'; that factor is missing.": {"d_new * f, dx": "d_new, dx"},
        }),
    ),
]  # fmt: skip
