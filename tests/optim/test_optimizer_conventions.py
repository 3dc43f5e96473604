"""Optimizers: the options that say what other frameworks compute, against numbers that these gave."""

import numpy as np
import pytest
from checks import array, tensor

from minigrad import optim

START, RATES = [1.0, -2.0, 0.5, 0.25], [0.1, 0.1, 0.1, 0.01, 0.01, 0.05]
KERAS = {"eps": 1e-7, "decoupled_weight_decay": True}
ROOT = {"eps_in_sqrt": True, "lr_in_momentum": True}
# What float64 parameters are after a step at each rate: in Keras 3.15.1 with JAX 0.10.2, and in optax 0.2.8. Options that
# are not named are the same as here.
RECORDED = {
    "keras SGD(momentum=0.9)": (
        "SGD", {"momentum": 0.9, "lr_in_momentum": True},
        [0.999997177321, -2.1034546999999995, -0.6676080000000002, 0.28581125],
    ),
    "keras SGD(momentum=0.9, nesterov=True)": (
        "SGD", {"momentum": 0.9, "nesterov": True, "lr_in_momentum": True},
        [0.9999964695889001, -2.1081092299999997, -0.8588472000000004, 0.288330125],
    ),
    "keras SGD(momentum=0.9, weight_decay=0.1)": (
        "SGD", {"momentum": 0.9, "lr_in_momentum": True, "weight_decay": 0.1, "decoupled_weight_decay": True},
        [0.963514770229598, -2.029305933519345, -0.6760481640001977, 0.27630518296449874],
    ),
    "keras SGD(weight_decay=0.1)": (
        "SGD", {"weight_decay": 0.1, "decoupled_weight_decay": True},
        [0.9635165940828219, -1.941533541459495, 0.17858758584430245, 0.24678999739052374],
    ),
    "keras Adam()": (
        "Adam", {"eps": 1e-7, "eps_before_correction": True},
        [0.834553633127808, -2.12720121865562, 0.1354509251136906, 0.5282823164952549],
    ),
    "keras Adam(amsgrad=True, weight_decay=0.1)": (
        "Adam", {"amsgrad": True, "weight_decay": 0.1, "eps_before_correction": True, **KERAS},
        [0.7998234861745577, -2.051408702483033, 0.12236678468834453, 0.5142372402056536],
    ),
    "keras AdamW()": (
        "AdamW", {"eps": 1e-7, "weight_decay": 0.004, "eps_before_correction": True},
        [0.8331449355391869, -2.1241288208636684, 0.13491893772286115, 0.5277142521104973],
    ),
    "keras Nadam()": (
        "NAdam", {"eps": 1e-7, "momentum_decay": 1.0},
        [0.6607822442937406, -2.076699275184209, 0.21630478727248015, 0.40295057057683104],
    ),
    "keras RMSprop()": (
        "RMSprop", {"alpha": 0.9, "eps": 1e-7, "eps_in_sqrt": True},
        [0.9968693974647536, -2.2044351551302483, -0.28065097236930037, 0.6648496617968077],
    ),
    "keras RMSprop(momentum=0.9, centered=True, weight_decay=0.1)": (
        "RMSprop", {"alpha": 0.9, "momentum": 0.9, "centered": True, "weight_decay": 0.1, **KERAS, **ROOT},
        [0.9546467834659974, -3.1164700933646143, -2.8720027257672314, 2.609804162633254],
    ),
    "keras Adagrad()": (
        "Adagrad", {"initial_accumulator_value": 0.1, "eps": 1e-7, "eps_in_sqrt": True},
        [0.9999968693466823, -2.042321672816873, 0.2690797603516704, 0.2691738320605573],
    ),
    "keras Adadelta()": (
        "Adadelta", {"rho": 0.95, "eps": 1e-7},
        [0.9999990100038293, -2.0000693279194866, 0.49953243837744216, 0.2501929612110349],
    ),
    "keras Lion()": ("Lion", {}, [0.63, -2.0500000000000003, 0.13, 0.4799999999999999]),
    "optax sgd(momentum=0.9)": (
        "SGD", {"momentum": 0.9}, [0.9999979355845, -2.0525691499999996, -0.25124100000000005, 0.26965512499999994],
    ),
    "optax rmsprop(momentum=0.9)": (
        "RMSprop", {"alpha": 0.9, "momentum": 0.9, **ROOT},
        [0.971775734318994, -3.1132806160676076, -2.572598341851956, 2.4708726713361244],
    ),
    "optax rmsprop(momentum=0.9, centered=True)": (
        "RMSprop", {"alpha": 0.9, "momentum": 0.9, "centered": True, **ROOT},
        [0.9717749324602774, -3.2037012908517344, -2.8834107185007545, 2.6446602500659258],
    ),
    "optax adagrad()": (
        "Adagrad", {"initial_accumulator_value": 0.1, "eps": 1e-7, "eps_in_sqrt": True},
        [0.9999968693466823, -2.042321672816873, 0.2690797603516704, 0.2691738320605573],
    ),
    "optax adam()": (
        "Adam", {}, [0.641810434386342, -2.1272024292476974, 0.13545006556789818, 0.5282983067141594],
    ),
    "optax adamw()": (
        "AdamW", {"weight_decay": 1e-4},
        [0.641778511783146, -2.1271255776703026, 0.13543675707805367, 0.5282840984163908],
    ),
    "optax nadam()": (
        "NAdam", {"momentum_decay": 1e9},
        [0.5303348812622536, -2.1400772782952098, 0.07338459851023008, 0.5459383161566985],
    ),
    "optax adadelta()": (
        "Adadelta", {}, [0.999999010000721, -2.0001516060390134, 0.49893544498030956, 0.25043215338432856],
    ),
    "optax lion()": (
        "Lion", {"weight_decay": 1e-3},
        [0.6296821486616696, -2.0492432059980485, 0.12986712261338706, 0.4798576164490368],
    ),
}  # fmt: skip


# The same of a matrix in Keras, to the size of its ε: it adds to the norm, and to the squares
MATRIX = [[1.0, -2.0, 0.5], [0.25, 1.5, -0.75]]
OF_MATRICES = {
    "Muon()": (
        "Muon", {"weight_decay": 0.004, "adjust_lr_fn": "match_rms_adamw"},
        [[0.9984912247072607, -2.0238479818553814, 0.4022896407268643],
         [0.2574016724646388, 1.376198968823808, -0.7286364484962171]],
    ),
    "Muon(nesterov=False)": (
        "Muon", {"weight_decay": 0.004, "adjust_lr_fn": "match_rms_adamw", "nesterov": False},
        [[0.9985304581026583, -2.0208167464006523, 0.4046725432121088],
         [0.25824254615572384, 1.3732651448112159, -0.7283957684060391]],
    ),
    "Adafactor()": (
        "Adafactor", {"eps": (1e-15, 1e-3)},
        [[0.9999635021541893, -2.021872191319581, 0.1322308567472234],
         [0.5676569624567408, 0.8809054163626701, -0.5278616852668611]],
    ),
}  # fmt: skip


def train(name, options, start, device):
    parameter = tensor(np.array(start), device, True)
    optimizer = getattr(optim, name)([parameter], lr=0.1, **options)
    for t, lr in enumerate(RATES):
        grads = [1e-6 * (t + 1), 0.3 * (-1) ** t, 1.0 - 0.1 * t, 0.02 * t - 0.05, 0.5, -0.2 * t]
        optimizer.param_groups[0]["lr"] = lr
        parameter.grad = tensor(np.array(grads)[: parameter.size].reshape(parameter.shape), device)
        optimizer.step()
    return array(parameter)


@pytest.mark.parametrize("call", RECORDED)
def test_a_step_is_that_of_the_other_framework(call, device):
    name, options, expected = RECORDED[call]
    np.testing.assert_allclose(train(name, options, START, device), expected, rtol=1e-12)


@pytest.mark.parametrize("call", OF_MATRICES)
def test_a_step_of_a_matrix_is_keras_s(call, device):
    name, options, expected = OF_MATRICES[call]
    np.testing.assert_allclose(train(name, options, MATRIX, device), expected, rtol=1e-7)
