"""The linear layer's backward pass: two products and a sum."""

from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.stages.linear import linear_backward

HINTS = (
    "For one row: y_o = sum over i of w_oi x_i, plus b_o. So x_i gets w_oi g_o from every output o. As a product: g @ w.",
    "For one row, w_oi gets g_o x_i. Over all rows these add up, and a sum of such outer products is a product: g^T x.",
    "b is added to every row, so its gradient is the sum of g over all axes but the last.",
    """With more axes in front, make them one: g.reshape(-1, g.shape[-1]), and x likewise. The gradient of x keeps all
    axes; g @ w does that by itself.""",
)


def cases(draw):
    for lead in ((1,), (2,), (2, 2), (), (2, 1, 3)):
        i, o = draw.size(2, 5), draw.size(3, 6)
        yield {"g": draw(*lead, o), "x": draw(*lead, i), "w": draw(o, i)}
    yield {"g": draw(3, 3), "x": draw(3, 3), "w": draw(3, 3)}


def right(g, x, w):
    return gradients(lambda x, w, b: x @ w.T + b, g, x, w, g.reshape(-1, g.shape[-1])[0] * 0)


OF_W, OF_B = "rows.T @ x.reshape(-1, x.shape[-1])", "rows.sum(axis=0)"
PARTS = [
    Part(
        "linear_backward", right, cases, ("the gradient of x", "the gradient of w", "the gradient of b"),
        mistakes(linear_backward, {
            "If w is square, your product uses its transpose: y = x w^T, so the gradient of x is g w, without one.":
                {"g @ w": "(g @ w.T if len(w) == w.shape[1] else g @ w)"},
            """The shapes of g and w do not fit: g @ w.T has another axis of w next to that of g. y = x w^T, so the gradient
            of x is g @ w.""": {"g @ w": "g @ w.T"},
            """The shapes of g and x do not fit: .T reverses all axes. With more axes in front, make them one: g.reshape(-1,
            g.shape[-1]), and x likewise.""": {OF_W: "g.T @ x"},
            "It is x^T g, the transpose of the right one. w has one row per output, so it is g^T x.":
                {OF_W: "x.reshape(-1, x.shape[-1]).T @ rows"},
            """It is the mean over the rows. The gradient adds the rows; if the loss is a mean, g already contains the
            factor.""": {"rows.T": "rows.T / len(rows)"},
            """b has one number per output and gets a contribution from every row: sum over all axes but the
            last. Nothing is summed.""": {OF_B: "g"},
            "The sum is over the first axis only. With more axes in front, sum over all of them.": {OF_B: "g.sum(axis=0)"},
            "It is the mean of g over the rows; b is added to every row, so the contributions add up.": {OF_B: "rows.mean(axis=0)"},
            "It is the sum over everything. Each output has its own bias: keep the last axis.": {OF_B: "rows.sum()"},
        }),
    )
]  # fmt: skip
