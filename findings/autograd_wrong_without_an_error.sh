#!/usr/bin/env bash
# autograd 1.9.1 (HIPS): gradients that are wrong without an error. linalg.solve, cross and where, with an argument that is
# broadcast, give it a gradient of the broadcast shape that is not summed, so that `b -= rate * gradient` makes a matrix
# of a vector; maximum and matmul sum it. rfft and irfft with norm="backward", another name of the default, get the
# gradient divided, and multiplied, by the number of elements, and with norm="forward" the other way round; fft and ifft
# are right. scipy.stats.chi2.logpdf(x, df) has the gradient 0 for x if df is no integer, where logpdf itself is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q autograd==1.9.1 numpy==2.4.6 scipy==1.17.1 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import autograd.numpy as anp
import numpy as np
from autograd import grad
from autograd.numpy import fft, linalg
from autograd.scipy.stats import chi2


def pair(f, x):
    """Return the gradient of f at x, and the same by differences."""
    x = np.asarray(x, float)
    steps = 1e-5 * np.eye(x.size).reshape(-1, *x.shape)
    return grad(f)(x), np.array([(f(x + step) - f(x - step)) / 2e-5 for step in steps]).reshape(x.shape)


rows = np.arange(6.0).reshape(2, 3)
matrices = np.stack([np.diag([1.0, 2, 4]), np.diag([2.0, 1, 1])])
vector = np.array([1.0, 2, 4])
for name, f, x in (
    ("solve", lambda b: anp.sum(linalg.solve(matrices, b) ** 2), vector[:, None]),
    ("cross", lambda b: anp.sum(anp.cross(rows, b) ** 2), vector),
    ("where", lambda b: anp.sum(anp.where(rows > 1, b, 0) ** 2), vector),
    ("matmul", lambda b: anp.sum(anp.matmul(matrices, b) ** 2), vector[:, None]),
    ("maximum", lambda b: anp.sum(anp.maximum(rows, b) ** 2), vector),
):
    found, right = pair(f, x)
    print(f"{name:7} of an argument of shape {x.shape}: a gradient of shape {found.shape}")
    if name in ("matmul", "maximum"):
        assert np.allclose(found, right)
    else:
        assert found.shape == (2, *x.shape) and np.allclose(found.sum(0), right)

for name in ("fft", "ifft", "rfft", "irfft"):
    for norm in (None, "backward", "ortho", "forward"):
        f = lambda x: anp.sum(anp.abs(getattr(fft, name)(x, norm=norm)) ** 3)
        found, right = pair(f, [1.0, 2, 4, 5])
        ratio = found / right
        print(f"{name:5} norm={norm}: the gradient is {ratio[0]:.4g} times the right one")
        size = len(getattr(np.fft, name)(np.ones(4)))
        power = {"backward": 1, "forward": -1}.get(norm, 0) * {"rfft": -1, "irfft": 1}.get(name, 0)
        assert np.allclose(ratio, (4 if name == "rfft" else size) ** float(power), rtol=1e-4)

for freedom in (2.0, 2.5):
    found, right = pair(lambda x: chi2.logpdf(x, freedom), 1.0)
    print(f"chi2.logpdf, df={freedom}: gradient {float(found):.3f}, by differences {float(right):.3f}")
    assert np.allclose(found, right if freedom == 2 else 0) and abs(right) > 0.2
PYTHON
