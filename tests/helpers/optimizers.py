"""Our optimizers and PyTorch's on the same parameters and gradients."""

import itertools

import numpy as np
from checks import array, tensor

import minigrad as mg

SHAPES = [(5, 3), (4,), (), (0, 2), (130, 70)]
STEPS = 25


def grid(**options):
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


CASES = [
    *[("SGD", o) for o in grid(lr=[0.1], momentum=[0.0, 0.9], dampening=[0.0, 0.3], weight_decay=[0.0, 0.1])],
    *[("SGD", o) for o in grid(lr=[0.1], momentum=[0.9], nesterov=[True], weight_decay=[0.0, 0.1])],
    *[("Adam", o) for o in grid(lr=[0.1], amsgrad=[False, True], weight_decay=[0.0, 0.1])],
    ("Adam", {"lr": 0.01, "betas": (0.5, 0.8), "eps": 1e-3}),
    *[("AdamW", o) for o in grid(lr=[0.1], amsgrad=[False, True], weight_decay=[0.0, 0.1])],
    ("AdamW", {}),
    *[("RMSprop", o) for o in grid(lr=[0.1], momentum=[0.0, 0.9], centered=[False, True], weight_decay=[0.0, 0.1])],
    ("RMSprop", {"alpha": 0.5, "eps": 1e-2}),
    *[("Adagrad", o) for o in grid(lr=[0.1], lr_decay=[0.0, 0.1], weight_decay=[0.0, 0.1])],
    ("Adagrad", {"initial_accumulator_value": 0.5, "eps": 1e-3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    *((name, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}) for name in ("Adam", "AdamW", "RMSprop", "Adagrad")),
]


def gradients(step, rng):
    """Gradients differ in every step; the second parameter has none in steps 3 to 6, the last only from step 10."""
    return [
        None if (index == 1 and 3 <= step < 7) or (index == 4 and step < 10) else rng.standard_normal(shape)
        for index, shape in enumerate(SHAPES)
    ]


def pair(torch, dtype, device):
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    return [tensor(v, device, True) for v in values], [torch.tensor(v, requires_grad=True) for v in values]


def give(torch, ours, theirs, grads, dtype):
    for a, b, g in zip(ours, theirs, grads, strict=True):
        a.grad = None if g is None else mg.tensor(g, dtype=dtype, device=a.device)
        b.grad = None if g is None else torch.tensor(g.astype(dtype))


def agree(ours, theirs, dtype):
    close = {"rtol": 1e-12, "atol": 1e-13} if dtype == "float64" else {"rtol": 2e-4, "atol": 2e-5}
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(array(a), b.detach().numpy(), **close)


def two_ones():
    return mg.ones(2, requires_grad=True)
