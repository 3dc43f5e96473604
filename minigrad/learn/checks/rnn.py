"""A plain recurrent network: the states, and backpropagation through time."""

import minigrad as mg
from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.stages.rnn import rnn, rnn_backward

HINTS = (
    "Forward: a loop over t with one variable h; collect the states in a list, and np.stack it.",
    """Backward: begin with dh = zeros, the part of the gradient that comes from the future. At step t, the gradient of h_t
    is g[t] + dh.""",
    "Through tanh: da = (g[t] + dh) * (1 - states[t]**2). The rest is the linear layer of stage 3, twice.",
    """The state that step t used is states[t - 1], and h0 at t = 0. So w_h gets da^T times that. At the end of the step, dh
    = da @ w_h goes to step t - 1; after the last of them, dh is the gradient of h0.""",
)
NAMES = ("x", "h0", "w_x", "w_h", "b")


def cases(draw):
    for steps, n, i, h in (
        (1, 1, 1, 1),
        (2, 1, 1, 2),
        (3, 2, 2, 2),
        (4, draw.size(2, 3), draw.size(1, 3), draw.size(2, 4)),
    ):
        arrays = draw(steps, n, i), draw(n, h), draw(h, i), draw(h, h), draw(h)
        yield {name: array / 8 for name, array in zip(NAMES, arrays, strict=True)}


def backward_cases(draw):
    for case in cases(draw):
        states = rnn(*case.values())
        yield {"g": draw(*states.shape), **case, "states": states}


def unroll(x, h, w_x, w_h, b):
    states = []
    for t in range(len(x)):
        h = mg.tanh(x[t] @ w_x.T + h @ w_h.T + b)
        states.append(h)
    return mg.stack(states)


def right(*arrays):
    return unroll(*map(mg.tensor, arrays)).numpy()


def right_backward(g, x, h0, w_x, w_h, b, states):
    return gradients(unroll, g, x, h0, w_x, w_h, b)


SLOPE, BACK = " * (1 - states[t] ** 2)", "dh = da @ w_h"
PARTS = [
    Part(
        "rnn", right, cases, ("the states",),
        mistakes(rnn, {
            "tanh is missing.": {"np.tanh": ""},
            "Every step begins from h0: the state is not carried on.": {"h @ w_h.T": "h0 @ w_h.T"},
            "w_h is not transposed. w_h has one row per new unit, so the product is h w_h^T.": {"h @ w_h.T": "h @ w_h"},
            "The bias is missing.": {" + b)": ")"},
            "It is the last state only. Return those of all steps, as one array (T, N, H).": {"np.stack(states)": "h"},
            "h0 is not used: the first step begins from zeros.": {"h, states = h0": "h, states = 0 * h0"},
        }),
    ),
    Part(
        "rnn_backward", right_backward, backward_cases, tuple(f"the gradient of {name}" for name in NAMES),
        mistakes(rnn_backward, {
            """Nothing flows back through time: each step sees only its own g. The state of step t is also the input of step
            t + 1; carry that gradient from one step to the one before.""": {BACK: "pass"},
            "Only g of the last step is used. Every state is an output, so that g[t] is added at every step.":
                {"(g[t]": "(g[t] * (t == len(x) - 1)"},
            """What goes back through time is added to what went back before. Step t + 1 alone sends a gradient to step
            t, and it contains that of all later ones: replace dh, do not add to it.""": {"dh = da": "dh += da"},
            "The loop runs from the first step to the last. The gradient goes the other way.":
                {"reversed(range(len(x)))": "range(len(x))"},
            "The slope of tanh is missing: da = (g[t] + dh) * (1 - h_t**2).": {SLOPE: ""},
            """What comes back from step t + 1 is added after the slope of tanh. It is a gradient of h_t, like g[t]: add both,
            then multiply.""": {f"(g[t] + dh){SLOPE}": f"g[t]{SLOPE} + dh"},
            "The slope of tanh is 1 - h_t**2 with the result h_t. You use the argument a_t.":
                {"states[t] **": "(x[t] @ w_x.T + before @ w_h.T + b) **"},
            "What goes back through time is g times w_h; it has to be da, after the slope of tanh.": {BACK: "dh = g[t] @ w_h"},
            "What goes back through time is da @ w_h.T; it has to be da @ w_h, because the step computes h @ w_h.T.":
                {BACK: f"{BACK}.T"},
            "w_h met h_{t-1} in step t, not h_t: use the state before.": {"da.T @ before": "da.T @ states[t]"},
            """At the first step, the state before is h0. Here it is the last one, because states[-1] is what Python
            finds at t = 0.""": {" if t else h0": ""},
            "At the first step, the state before is h0, not zeros.": {"else h0": "else 0 * h0"},
            "It is the mean over the rows. b is added in every row, so that the contributions add up.": {"da.sum": "da.mean"},
            "It is the contribution of the first step alone. All steps share the weights: add up (+=) over the steps.":
                {" += ": " = "},
        }),
    ),
]  # fmt: skip
