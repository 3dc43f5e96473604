"""Our optimizers and PyTorch's on the same parameters and gradients."""

import itertools

import numpy as np
from checks import array, tensor

import minigrad as mg

SHAPES = [(5, 3), (4,), (), (0, 2), (130, 70)]
# The rules composed of tensor operations; PyTorch's divide by the lengths of empty tensors.
COMPOSED = {"Adafactor": [(5, 3), (4,), (), (2, 3, 4), (30, 70)], "Muon": [(5, 3), (4, 4), (1, 6), (3, 9), (30, 20)]}
STEPS = 25


OURS = {"eps_in_sqrt", "eps_before_correction", "lr_in_momentum", "decoupled_weight_decay"}  # some are PyTorch's too


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
    *[("NAdam", o) for o in grid(lr=[0.1], weight_decay=[0.0, 0.1], decoupled_weight_decay=[False, True])],
    ("NAdam", {"betas": (0.5, 0.8), "eps": 1e-3, "momentum_decay": 0.5}),
    *[("RAdam", o) for o in grid(lr=[0.1], weight_decay=[0.0, 0.1], decoupled_weight_decay=[False, True])],
    ("RAdam", {"lr": 0.1, "betas": (0.5, 0.8), "eps": 1e-3}),
    *[("Adadelta", o) for o in grid(lr=[1.0], rho=[0.9, 0.5], weight_decay=[0.0, 0.1])],
    ("Adadelta", {"eps": 1e-2}),
    *[("Adafactor", o) for o in grid(lr=[0.1], weight_decay=[0.0, 0.1], maximize=[False, True])],
    ("Adafactor", {"beta2_decay": -0.5, "eps": (1e-3, 1e-2), "d": 2.0}),
    *[("Muon", o) for o in grid(lr=[0.1], nesterov=[False, True], adjust_lr_fn=["original", "match_rms_adamw"])],
    ("Muon", {"weight_decay": 0.5, "momentum": 0.5, "ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 3, "eps": 10.0}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    *(
        (name, {"lr": 0.1, "weight_decay": 0.1, "maximize": True})
        for name in ("Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta")
    ),
]


KERNELS = [(name, options) for name, options in CASES if name not in COMPOSED]


def gradients(step, rng, shapes=SHAPES):
    """Gradients differ in every step; the second parameter has none in steps 3 to 6, the last only from step 10."""
    return [
        None if (index == 1 and 3 <= step < 7) or (index == 4 and step < 10) else rng.standard_normal(shape)
        for index, shape in enumerate(shapes)
    ]


def pair(torch, dtype, device, shapes=SHAPES):
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
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
