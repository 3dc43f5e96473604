"""The choice of the precision of float32 products."""

import numpy as np
import pytest
from checks import agree, raises

import minigrad as mg


@pytest.fixture(autouse=True)
def restored():
    assert mg.get_float32_matmul_precision() == "highest"
    yield
    mg.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("name", ["highest", "high", "medium"])
def test_what_is_chosen_is_returned(name):
    mg.set_float32_matmul_precision(name)
    assert mg.get_float32_matmul_precision() == name


@pytest.mark.parametrize("name", ["low", "HIGH", "", None, 1, np.ones(2)])
def test_other_values_are_refused(name):
    mg.set_float32_matmul_precision("high")
    match = r"^\[set_float32_matmul_precision\] expected 'highest', 'high' or 'medium', got"
    raises(ValueError, match, mg.set_float32_matmul_precision, name)
    assert mg.get_float32_matmul_precision() == "high"


def test_nothing_changes_on_the_cpu(rng):
    x, w = (mg.tensor(rng.standard_normal((2, 3, 33, 33)).astype(np.float32)) for _ in range(2))
    results = []
    for name in ("highest", "high"):
        mg.set_float32_matmul_precision(name)
        results.append([x @ w, mg.nn.functional.conv2d(x, w[..., :3, :3]),
                        mg.nn.functional.scaled_dot_product_attention(x, w, w)])  # fmt: skip
    agree(*results)
