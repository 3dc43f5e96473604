"""An optimizer: one step of AdamW.

Adam keeps two running averages for every parameter, of the gradient and of
its square, and divides one by the root of the other:

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2

Both begin at 0 and are too small at first. A number that is averaged from 0
for t steps has the share 1 - beta**t of its final size, so divide it out:

    m_hat = m / (1 - beta1**t)          v_hat = v / (1 - beta2**t)
    p = p - lr * m_hat / (sqrt(v_hat) + eps)

Here eps is outside the root, unlike in normalization. The W stands for
decoupled weight decay: the parameter shrinks by itself,

    p = p * (1 - lr * weight_decay)          before the line above

instead of a term in the gradient, which would be divided by the root as
well.

`adamw` returns the new p, m and v. The number of the step, t, begins at 1.
Make new arrays. NumPy arrays in, NumPy arrays out, float64.
"""

import numpy as np


def adamw(p, g, m, v, t, lr, beta1, beta2, eps, weight_decay):  # yours
    """The new p, m and v."""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    p = p * (1 - lr * weight_decay) - lr * m_hat / (np.sqrt(v_hat) + eps)
    return p, m, v
