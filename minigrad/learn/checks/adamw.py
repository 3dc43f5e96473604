"""AdamW, step by step next to minigrad's."""

import numpy as np

import minigrad as mg
from minigrad import optim
from minigrad.learn.checking import Failure, Part

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
    """The parameter after one step, after two, and after the last one."""
    m, v, found = np.zeros_like(p), np.zeros_like(p), []
    for t, g in enumerate(gradients, 1):
        given = [a.copy() for a in (p, g, m, v)]
        result = answer(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay)
        for name, new, old in zip("pgmv", (p, g, m, v), given, strict=True):
            if not np.array_equal(new, old, equal_nan=True):
                raise Failure(
                    f"It writes into its argument {name}, which belongs to the caller. Compute with a new array."
                )
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


def step(
    first=lambda m, g, b: b * m + (1 - b) * g,
    second=lambda v, g, b: b * v + (1 - b) * g * g,
    share_m=lambda b, t: 1 - b**t,
    share_v=lambda b, t: 1 - b**t,
    divide=lambda m, v, eps: m / (np.sqrt(v) + eps),
    decay=lambda p, lr, w: p * (1 - lr * w),
    grad=lambda g, p, w: g,
    late=lambda p, lr, w: p,
    kept=False,
    sign=-1,
):
    """A step with one part of it replaced."""

    def answer(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
        g = grad(g, p, weight_decay)
        m, v = first(m, g, beta1), second(v, g, beta2)
        m_hat, v_hat = m / share_m(beta1, t), v / share_v(beta2, t)
        p = late(decay(p, lr, weight_decay) + sign * lr * divide(m_hat, v_hat, eps), lr, weight_decay)
        return p, m_hat if kept else m, v_hat if kept else v

    return answer


def betas_exchanged(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    return step()(p, g, m, v, t, lr, beta2, beta1, eps, weight_decay)


PARTS = [
    Part(
        "adamw", right, cases, ("p after one step", "p after two steps", "p after four steps"),
        {
            "m and v are not corrected: divide them by 1 - beta1**t and 1 - beta2**t.": step(
                share_m=lambda b, t: 1.0, share_v=lambda b, t: 1.0
            ),
            "v is not corrected: divide it by 1 - beta2**t.": step(share_v=lambda b, t: 1.0),
            "m is not corrected: divide it by 1 - beta1**t.": step(share_m=lambda b, t: 1.0),
            """The correction is that of the first step in all steps: 1 - beta**t, with the power.""": step(
                share_m=lambda b, t: 1 - b, share_v=lambda b, t: 1 - b
            ),
            """The correction has beta * t. It is 1 - beta**t, with the power.""": step(
                share_m=lambda b, t: 1 - b * t, share_v=lambda b, t: 1 - b * t
            ),
            """The correction of m has beta1 * t. It is 1 - beta1**t, with the power.""": step(share_m=lambda b, t: 1 - b * t),
            """The root is taken before the correction of v: it is sqrt(v / (1 - beta2**t)).""": step(
                share_v=lambda b, t: (1 - b**t) ** 2
            ),
            """The corrected m and v are returned, and the next step corrects them again. Return m and v as they were
            before the correction.""": step(kept=True),
            "eps is inside the root. In Adam it is outside: sqrt(v^) + eps.": step(
                divide=lambda m, v, eps: m / np.sqrt(v + eps)
            ),
            "The root is missing: divide by sqrt(v^) + eps.": step(divide=lambda m, v, eps: m / (v + eps)),
            "eps is missing: divide by sqrt(v^) + eps.": step(divide=lambda m, v, eps: m / np.sqrt(v)),
            "v averages g. It has to average the square of g.": step(second=lambda v, g, b: b * v + (1 - b) * g),
            "v averages the absolute value of g. It has to average the square.": step(
                second=lambda v, g, b: b * v + (1 - b) * abs(g)
            ),
            """The shares are exchanged: the old average keeps the share beta, and the new value gets 1 - beta.""": step(
                first=lambda m, g, b: (1 - b) * m + b * g, second=lambda v, g, b: (1 - b) * v + b * g * g
            ),
            "The factor 1 - beta1 is missing in m.": step(first=lambda m, g, b: b * m + g),
            "The factor 1 - beta2 is missing in v.": step(second=lambda v, g, b: b * v + g * g),
            "beta1 and beta2 are exchanged.": betas_exchanged,
            "The step goes uphill: the update is subtracted.": step(sign=1),
            "The weight decay is missing.": step(decay=lambda p, lr, w: p),
            """The weight decay is part of the gradient, as in Adam with L2. In AdamW it is decoupled: p * (1 - lr *
            weight_decay).""": step(decay=lambda p, lr, w: p, grad=lambda g, p, w: g + w * p),
            """The weight decay comes after the step, and shrinks the step too. It applies to the old p.""": step(
                decay=lambda p, lr, w: p, late=lambda p, lr, w: p * (1 - lr * w)
            ),
            "The weight decay lacks the factor lr: p * (1 - lr * weight_decay).": step(decay=lambda p, lr, w: p * (1 - w)),
        },
        call=reference,
    )
]  # fmt: skip
