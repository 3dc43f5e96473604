"""The optimizers of other frameworks, over 20 steps with a changing rate, beside minigrad's with the options named."""

import numpy as np
import pytest
from checks import array, tensor
from test_recorded import FILES, INPUTS

from minigrad import optim

STEPS = [0, 1, 7, 8, 19]  # the recorded ones
KERAS = {"eps": 1e-7, "eps_before_correction": True}
DECAY = {"weight_decay": 0.1, "decoupled_weight_decay": True}
HEAVY = {"momentum": 0.9, "lr_in_momentum": True}
ROOT = {"eps_in_sqrt": True, "lr_in_momentum": True}
SUM = {"initial_accumulator_value": 0.1, "eps": 1e-7, "eps_in_sqrt": True}
MUON = {"weight_decay": 0.004, "adjust_lr_fn": "match_rms_adamw"}
ROWS = {  # by framework: the recorded name, the class, and its options
    "keras": [
        ("sgd", "SGD", {}), ("momentum", "SGD", HEAVY), ("nesterov", "SGD", {**HEAVY, "nesterov": True}),
        ("sgd_decay", "SGD", DECAY), ("momentum_decay", "SGD", {**HEAVY, **DECAY}), ("adam", "Adam", KERAS),
        ("adam_decay", "Adam", {**KERAS, **DECAY}), ("adam_amsgrad", "Adam", {**KERAS, **DECAY, "amsgrad": True}),
        ("adamw", "AdamW", {**KERAS, "weight_decay": 0.004}), ("nadam", "NAdam", {"eps": 1e-7, "momentum_decay": 1.0}),
        ("rmsprop", "RMSprop", {"alpha": 0.9, "eps": 1e-7, **ROOT}),
        ("rmsprop_momentum", "RMSprop", {"alpha": 0.9, "eps": 1e-7, **HEAVY, **ROOT}),
        ("rmsprop_centered", "RMSprop", {"alpha": 0.9, "eps": 1e-7, **HEAVY, **ROOT, **DECAY, "centered": True}),
        ("adagrad", "Adagrad", SUM), ("adagrad_far", "Adagrad", {"eps": 1e-7, "eps_in_sqrt": True}),
        ("adadelta", "Adadelta", {"rho": 0.95, "eps": 1e-7}), ("lion", "Lion", {}), ("matrix_muon", "Muon", MUON),
        ("matrix_muon_plain", "Muon", {**MUON, "nesterov": False}),
        ("matrix_adafactor", "Adafactor", {"eps": (1e-15, 1e-3)}),
    ],
    "flax": [  # optax
        ("sgd", "SGD", {}), ("momentum", "SGD", {"momentum": 0.9}),
        ("nesterov", "SGD", {"momentum": 0.9, "nesterov": True}), ("adam", "Adam", {}),
        ("adamw", "AdamW", {"weight_decay": 1e-4}), ("rmsprop", "RMSprop", {"alpha": 0.9, **ROOT}),
        ("rmsprop_momentum", "RMSprop", {"alpha": 0.9, "momentum": 0.9, **ROOT}),
        ("rmsprop_centered", "RMSprop", {"alpha": 0.9, "momentum": 0.9, "centered": True, **ROOT}),
        ("adagrad", "Adagrad", SUM), ("adadelta", "Adadelta", {}), ("lion", "Lion", {"weight_decay": 1e-3}),
        ("nadam", "NAdam", {"momentum_decay": 1e9}),
    ],
    "paddle": [
        ("sgd", "SGD", {}), ("momentum", "SGD", {"momentum": 0.9}),
        ("nesterov", "SGD", {"momentum": 0.9, "nesterov": True}), ("adam", "Adam", {}),
        ("adam_decay", "Adam", {"weight_decay": 0.1}), ("adamw", "AdamW", {}),
        ("rmsprop", "RMSprop", {"alpha": 0.95, "eps": 1e-6, **ROOT}),
        ("rmsprop_momentum", "RMSprop", {"alpha": 0.95, "eps": 1e-6, "momentum": 0.9, **ROOT}),
        ("adagrad", "Adagrad", {"eps": 1e-6}), ("adadelta", "Adadelta", {"rho": 0.95}), ("nadam", "NAdam", {}),
    ],
    "mindspore": [
        ("sgd", "SGD", {}), ("momentum", "SGD", {"momentum": 0.9}), ("adam", "Adam", {"eps_before_correction": True}),
        ("rmsprop", "RMSprop", {"alpha": 0.9, "eps": 1e-10, **ROOT}),
        ("adagrad", "Adagrad", {"initial_accumulator_value": 0.1}),
    ],
    "mlx": [
        ("sgd", "SGD", {}), ("momentum", "SGD", {"momentum": 0.9}),
        ("nesterov", "SGD", {"momentum": 0.9, "nesterov": True}), ("sgd_decay", "SGD", {"weight_decay": 0.1}),
        ("adam_corrected", "Adam", {}), ("adamw_corrected", "AdamW", {}), ("rmsprop", "RMSprop", {}),
        ("adagrad", "Adagrad", {"eps": 1e-8}), ("adadelta", "Adadelta", {}), ("lion", "Lion", {}),
    ],
}  # fmt: skip
# What no option says: these have no bias correction, and the last applies the dampening in the first step too.
OTHER = [
    ("mindspore", "adamw", "AdamW", {}), ("mlx", "adam", "Adam", {}), ("mlx", "adamw", "AdamW", {}),
    ("mlx", "dampening", "SGD", {"momentum": 0.9, "dampening": 0.5}),
]  # fmt: skip
# Paddle holds its momentum, and where it computes RMSProp's mean square, in float32; the others compute in float32.
TOLERANCE = {"keras": 1e-13, "flax": 1e-13, "paddle": 3e-6, "mindspore": 1e-6, "mlx": 4e-6}


def distance(file, name, kind, options, device):
    """Train with the recorded gradients; return the largest difference from the recorded parameters."""
    expected = FILES[file][f"optimizers/{name}"]
    p = tensor(INPUTS["start"].reshape(expected.shape[1:]), device, True)
    optimizer, found = getattr(optim, kind)([p], lr=0.1, **options), []
    if (file, name) == ("mindspore", "rmsprop"):  # it begins with a mean square of 1
        optimizer.state[p] = {"step": 0, "square_avg": tensor(np.ones(6), device)}
    for gradient, rate in zip(INPUTS["gradients"], INPUTS["rates"], strict=True):
        optimizer.param_groups[0]["lr"] = rate
        p.grad = tensor(gradient.reshape(expected.shape[1:]), device)
        optimizer.step()
        found.append(array(p).copy())
    return abs(np.array(found)[STEPS] - expected).max()


@pytest.mark.parametrize(
    "file, name, kind, options", [(file, *row) for file, rows in ROWS.items() for row in rows],
    ids=[f"{file}-{row[0]}" for file, rows in ROWS.items() for row in rows],
)  # fmt: skip
def test_steps_agree(file, name, kind, options, device):
    assert distance(file, name, kind, options, device) < (1e-7 if "matrix" in name else TOLERANCE[file])


@pytest.mark.parametrize("file, name, kind, options", OTHER, ids=[f"{row[0]}-{row[1]}" for row in OTHER])
def test_what_no_option_says(file, name, kind, options):
    assert distance(file, name, kind, options, "cpu") > 0.1
