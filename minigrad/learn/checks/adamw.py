"""AdamW, step by step next to minigrad's."""

import numpy as np

import minigrad as mg
from minigrad import optim
from minigrad.learn.checking import Failure, Part, mistakes
from minigrad.learn.stages.adamw import adamw

HINTS = (
    "Four lines for m, v, m^ and v^, as in the text. The m and v that you return are those without the correction.",
    "p = p * (1 - lr * weight_decay) - lr * m_hat / (np.sqrt(v_hat) + eps). The p on the right is the old one.",
    "Write m = beta1 * m + ..., not m *= beta1: the second would change the caller's array.",
)
STEPS = 4


def cases(draw):
    for size in (1, 2, draw.size(3, 5)):
        for weight_decay in (0.0, 0.5):
            yield {
                "p": draw(size), "gradients": draw(STEPS, size), "lr": 0.125, "beta1": 0.75, "beta2": 0.9,
                "eps": 0.5 if draw.small else 1e-8, "weight_decay": weight_decay,
            }  # fmt: skip


def call(answer, p, gradients, lr, beta1, beta2, eps, weight_decay):
    """Return the parameter after one step, after two, and after the last one."""
    m, v, found = np.zeros_like(p), np.zeros_like(p), []
    for t, g in enumerate(gradients, 1):
        given = [a.copy() for a in (p, g, m, v)]
        result = answer(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay)
        for name, new, old in zip("pgmv", (p, g, m, v), given, strict=True):
            if not np.array_equal(new, old, equal_nan=True):
                raise Failure(f"It writes into its argument {name}, which is the caller's. Compute with a new array.")
        three = isinstance(result, (tuple, list)) and len(result) == 3
        if not three or not all(isinstance(a, np.ndarray) for a in result):
            raise Failure("It has to return three arrays: the new p, m and v.")
        p, m, v = result
        found.append(p)
    return found[0], found[1], found[-1]


def right(p, gradients, lr, beta1, beta2, eps, weight_decay):
    p = mg.tensor(p, requires_grad=True)
    optimizer = optim.AdamW([p], lr, (beta1, beta2), eps, weight_decay)
    found = []
    for g in gradients:
        p.grad = mg.tensor(g)
        optimizer.step()
        found.append(p.detach().numpy().copy())
    return found[0], found[1], found[-1]


def reference(answer, *case):
    """The right trajectory comes from the optimizer itself, all others from steps."""
    return right(*case) if answer is right else call(answer, *case)


DECAY = " * (1 - lr * weight_decay)"
PARTS = [
    Part(
        "adamw", right, cases, ("p after one step", "p after two steps", "p after four steps"),
        mistakes(adamw, {
            "m and v are not corrected: divide them by 1 - beta1**t and 1 - beta2**t.":
                {"m / (1 - beta1**t), v / (1 - beta2**t)": "m, v"},
            "v is not corrected: divide it by 1 - beta2**t.": {"v / (1 - beta2**t)": "v"},
            "m is not corrected: divide it by 1 - beta1**t.": {"m / (1 - beta1**t)": "m"},
            "The correction is that of the first step in all steps: 1 - beta**t, with the power.": {"**t": ""},
            "The correction has t + 1. The first step has t = 1, so that the power is t itself.": {"**t": "**(t + 1)"},
            "The correction has beta * t. It is 1 - beta**t, with the power.": {"**t": " * t"},
            "The correction of m has beta1 * t. It is 1 - beta1**t, with the power.": {"beta1**t": "beta1 * t"},
            "The root is taken before the correction of v: it is sqrt(v / (1 - beta2**t)).":
                {"v / (1 - beta2**t)": "v / (1 - beta2**t) ** 2"},
            """The corrected m and v are returned, and the next step corrects them again. Return m and v as they were
            before the correction.""": {"return p, m, v": "return p, m_hat, v_hat"},
            "eps is inside the root. In Adam it is outside: sqrt(v^) + eps.": {"np.sqrt(v_hat) + eps": "np.sqrt(v_hat + eps)"},
            "The root is missing: divide by sqrt(v^) + eps.": {"np.sqrt(v_hat)": "v_hat"},
            "eps is missing: divide by sqrt(v^) + eps.": {" + eps": ""},
            "v averages g. It has to average the square of g.": {"g * g": "g"},
            "v averages the absolute value of g. It has to average the square.": {"g * g": "abs(g)"},
            "The shares are exchanged: the old average keeps the share beta, and the new value gets 1 - beta.": {
                "beta1 * m + (1 - beta1)": "(1 - beta1) * m + beta1", "beta2 * v + (1 - beta2)": "(1 - beta2) * v + beta2",
            },
            "The factor 1 - beta1 is missing in m.": {"(1 - beta1) * g": "g"},
            "The factor 1 - beta2 is missing in v.": {"(1 - beta2) * g": "g"},
            "beta1 and beta2 are exchanged.": {"lr, beta1, beta2": "lr, beta2, beta1"},
            "The step goes uphill: the update is subtracted.": {"- lr * m_hat": "+ lr * m_hat"},
            "The weight decay is missing.": {DECAY: ""},
            """The weight decay is part of the gradient, as in Adam with L2. In AdamW it is decoupled: p * (1 - lr *
            weight_decay).""": {DECAY: "", "    m = ": "    g = g + weight_decay * p\n    m = "},
            "The weight decay comes after the step, and shrinks the step too. It applies to the old p.":
                {DECAY: "", "return p": f"return p{DECAY}"},
            "The weight decay lacks the factor lr: p * (1 - lr * weight_decay).": {"1 - lr * weight_decay": "1 - weight_decay"},
        }),
        call=reference,
    )
]  # fmt: skip
