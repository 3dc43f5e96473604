"""Reductions split long columns into pieces: lengths on both sides of each boundary."""

import numpy as np
import pytest

import minigrad as mg

# Rows have two pieces from 8,192 elements on, and columns of a tile of 32 from 256 on; the threads of a row are a warp
# up to 2,048 elements.
SHAPES = (
    (1, 8_191), (1, 8_192), (1, 8_193), (5, 2_048), (5, 2_049), (3, 20_001), (20_001, 1), (255, 32), (256, 32),
    (257, 33), (2_050, 3),
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_pieces(shape, axis, rng):
    values = rng.standard_normal(shape).astype("float32")
    values[tuple(n - 1 for n in shape)] = 9
    x = mg.tensor(values, device="cuda:0")
    for name in ("sum", "max", "min", "argmax", "argmin", "var"):
        expected = getattr(np, name)(values.astype("float64"), axis=axis)
        got = getattr(mg, name)(x, axis=axis).to("cpu").numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4, err_msg=name)
    for name in ("any", "all"):
        np.testing.assert_array_equal(getattr(mg, name)(x > 3, axis=axis).to("cpu").numpy(),
                                      getattr(np, name)(values > 3, axis=axis))  # fmt: skip
