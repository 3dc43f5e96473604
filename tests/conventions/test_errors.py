"""Who writes another framework's words is told what they are here, and where the conventions are."""

from inspect import signature

import pytest

from minigrad import nn, optim
from minigrad.train import fit

NAMES = [
    (lambda: nn.Dense(3), AttributeError, r"`nn.Linear\(in_features, out_features\)` here, with other defaults"),
    (lambda: nn.LayerNorm(64, epsilon=1e-3), TypeError, r"\[LayerNorm\] expected eps, .* got epsilon: .*conventions.md"),
    (lambda: nn.BatchNorm2d(num_features=4, epsilon=1e-3), TypeError, "expected eps, .* got epsilon"),
    (lambda: nn.Linear(3, 4, use_bias=False), TypeError, "expected bias, .* got use_bias"),
    (lambda: nn.Linear(3, 4, activation="relu"), TypeError, r"is a layer here: nn.Sequential\(nn.Linear\(…\), nn.ReLU\(\)\)"),
    (lambda: nn.Conv2d(3, 4, 3, activation=None), TypeError, r"\[Conv2d\] expected no activation"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation=3), (TypeError, ValueError), "expected activation|got 3"),
    (lambda: fit(None, [], None, None, 1, callbacks=[]), TypeError, "got an unexpected argument 'callbacks': stop= and"),
    (lambda: fit(None, [], None, None, 1, steps=3), TypeError, "got an unexpected argument 'steps'$"),
    (lambda: nn.LeakyReLU(alpha=0.3), TypeError, "expected negative_slope, .* got alpha"),
    (lambda: optim.SGD([], learning_rate=0.1), TypeError, r"\[SGD\] expected lr, .* got learning_rate"),
    (lambda: optim.RMSprop([], rho=0.9), TypeError, "expected alpha, .* got rho"),
    (lambda: optim.SGD([], rho=0.9), TypeError, "unexpected keyword argument 'rho'"),
]  # fmt: skip


@pytest.mark.parametrize("make, error, says", NAMES, ids=[row[2] for row in NAMES])
def test_another_name(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_module_may_have_an_argument_of_such_a_name():
    class Own(nn.Module):
        def __init__(self, eps, epsilon, **others):
            super().__init__()
            self.eps = eps + epsilon

    assert Own(eps=1, epsilon=2, activation=nn.ReLU()).eps == 3


def test_a_momentum_that_is_the_weight_of_the_old():
    with pytest.warns(UserWarning, match="call 0.99 is 0.01 here, see docs/reference/conventions.md"):
        nn.BatchNorm1d(3, momentum=0.99)


def test_a_class_states_the_signature_of_its_constructor():
    """Python 3.11.2 shows that of `__new__` otherwise, and representations and errors go by it."""
    for kind in (nn.Linear, nn.BCELoss, optim.Adam):
        assert list(kind.__signature__.parameters) == list(signature(kind.__init__).parameters)[1:]
