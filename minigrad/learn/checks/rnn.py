"""A plain recurrent network: the states, and backpropagation through time."""

import numpy as np

import minigrad as mg
from minigrad.learn.checking import Part, gradients
from minigrad.learn.solutions import rnn as solution

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
        states = solution.rnn(*case.values())
        yield {"g": draw(*states.shape), **case, "states": states}


def unrolled(x, h, w_x, w_h, b):
    states = []
    for t in range(len(x)):
        h = mg.tanh(x[t] @ w_x.T + h @ w_h.T + b)
        states.append(h)
    return mg.stack(states)


def right(*arrays):
    return unrolled(*map(mg.tensor, arrays)).numpy()


def right_backward(g, x, h0, w_x, w_h, b, states):
    return gradients(unrolled, g, x, h0, w_x, w_h, b)


def forward(step, carried=lambda old, new: new):
    def answer(x, h0, w_x, w_h, b):
        h, states = h0, []
        for x_t in x:
            new = step(x_t, h, w_x, w_h, b)
            states.append(new)
            h = carried(h, new)
        return np.stack(states)

    return answer


def backward(
    slope=lambda g, h, a: g * (1 - h**2),
    future=lambda da, w_h, g, dh: da @ w_h,
    used=lambda states, h0, t: states[t - 1] if t else h0,
    add=lambda total, new: total + new,
    order=lambda steps: steps[::-1],
    over_rows=np.sum,
    joined=lambda slope, g, dh, h, a: slope(g + dh, h, a),
):
    """Backpropagation through time with one part of it replaced."""

    def answer(g, x, h0, w_x, w_h, b, states):
        dx, dw_x, dw_h, db = 0 * x, 0 * w_x, 0 * w_h, 0 * b
        dh = 0 * h0
        for t in order([*range(len(x))]):
            before = states[t - 1] if t else h0
            a = x[t] @ w_x.T + before @ w_h.T + b
            da = joined(slope, g[t], dh, states[t], a)
            dx[t] = da @ w_x
            dw_x, dw_h = add(dw_x, da.T @ x[t]), add(dw_h, da.T @ used(states, h0, t))
            db = add(db, over_rows(da, 0))
            dh = future(da, w_h, g[t], dh)
        return dx, dh, dw_x, dw_h, db

    return answer


def only_last(g, *rest):
    last = 0 * g
    last[-1] = g[-1]
    return backward()(last, *rest)


def last_state_only(x, h0, w_x, w_h, b):
    return solution.rnn(x, h0, w_x, w_h, b)[-1]


PARTS = [
    Part(
        "rnn", right, cases, ("the states",),
        {
            "tanh is missing.": forward(lambda x, h, w_x, w_h, b: x @ w_x.T + h @ w_h.T + b),
            "Every step begins from h0: the state is not carried on.": forward(
                lambda x, h, w_x, w_h, b: np.tanh(x @ w_x.T + h @ w_h.T + b), carried=lambda old, new: old
            ),
            "w_h is not transposed. w_h has one row per new unit, so the product is h w_h^T.": forward(
                lambda x, h, w_x, w_h, b: np.tanh(x @ w_x.T + h @ w_h + b)
            ),
            "The bias is missing.": forward(lambda x, h, w_x, w_h, b: np.tanh(x @ w_x.T + h @ w_h.T)),
            "It is the last state only. Return those of all steps, as one array (T, N, H).": last_state_only,
            "h0 is not used: the first step begins from zeros.": lambda x, h0, w_x, w_h, b: solution.rnn(
                x, 0 * h0, w_x, w_h, b
            ),
        },
    ),
    Part(
        "rnn_backward", right_backward, backward_cases, tuple(f"the gradient of {name}" for name in NAMES),
        {
            """Nothing flows back through time: each step sees only its own g. The state of step t is also the input of step
            t + 1; carry that gradient from one step to the one before.""": backward(future=lambda da, w_h, g, dh: 0 * (da @ w_h)),
            """Only g of the last step is used. Every state is an output, so that g[t] is added at every
            step.""": only_last,
            """What goes back through time is added to what went back before. Step t + 1 alone sends a gradient to step
            t, and it contains that of all later ones: replace dh, do not add to it.""": backward(
                future=lambda da, w_h, g, dh: dh + da @ w_h
            ),
            """The loop runs from the first step to the last. The gradient goes the other way.""": backward(
                order=lambda steps: steps
            ),
            """The slope of tanh is missing: da = (g[t] + dh) * (1 - h_t**2).""": backward(slope=lambda g, h, a: g),
            """What comes back from step t + 1 is added after the slope of tanh. It is a gradient of h_t, like g[t]: add both,
            then multiply.""": backward(joined=lambda slope, g, dh, h, a: slope(g, h, a) + dh),
            """The slope of tanh is 1 - h_t**2 with the result h_t. You use the argument a_t.""": backward(
                slope=lambda g, h, a: g * (1 - a**2)
            ),
            """What goes back through time is g times w_h; it has to be da, after the slope of tanh.""": backward(
                future=lambda da, w_h, g, dh: g @ w_h
            ),
            """What goes back through time is da @ w_h.T; it has to be da @ w_h, because the step computes h @ w_h.T.""": backward(
                future=lambda da, w_h, g, dh: da @ w_h.T
            ),
            """w_h met h_{t-1} in step t, not h_t: use the state before.""": backward(used=lambda states, h0, t: states[t]),
            """At the first step, the state before is h0. Here it is the last one, because states[-1] is what Python
            finds at t = 0.""": backward(used=lambda states, h0, t: states[t - 1]),
            """At the first step, the state before is h0, not zeros.""": backward(
                used=lambda states, h0, t: states[t - 1] if t else 0 * h0
            ),
            "It is the mean over the rows. b is added in every row, so that the contributions add up.": backward(over_rows=np.mean),
            """It is the contribution of the first step alone. All steps share the weights: add up (+=) over the
            steps.""": backward(add=lambda total, new: new),
        },
    ),
]  # fmt: skip
