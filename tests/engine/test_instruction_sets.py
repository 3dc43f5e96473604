"""Instruction sets that the kernels are compiled for give the same numbers."""

import os
import sys

import numpy as np
from threaded import python

from minigrad.engine.devices import cpu

RESULTS = """
import math, sys
import numpy as np
import minigrad as mg, minigrad.nn.functional as F
from minigrad.engine.devices import cpu
rng = np.random.default_rng(0)
found = {"isa": np.array(cpu.isa())}
for dtype in ("float32", "float64"):
    def leaf(*shape):
        return mg.tensor(rng.standard_normal(shape).astype(dtype), requires_grad=True)
    def planes(x, *shape):
        return mg.concat([x.reshape(-1)] * (math.prod(shape) // x.size + 1))[:math.prod(shape)].reshape(shape)
    def many(w):
        return mg.concat([w, w])[:64]
    x, w, b = leaf(37, 53), leaf(53), leaf(53)
    functions = {
        "exp": mg.exp, "tanh": mg.tanh, "erf": mg.erf, "sin": mg.sin, "gelu": F.gelu, "silu": F.silu,
        "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
        "log": lambda x: mg.log(x * x + 0.1), "sqrt": lambda x: mg.sqrt(abs(x) + 0.1),
        "pow": lambda x: (abs(x) + 0.1) ** 1.7, "softmax": F.softmax, "log_softmax": F.log_softmax,
        "sum": lambda x: x.sum(0), "var": lambda x: x.var(1), "cumsum": lambda x: x.cumulative_sum(axis=1),
        "matmul": lambda x: x @ x.T, "norm": lambda x: F.layer_norm(x, 53, w, b),
        "rms_norm": lambda x: F.rms_norm(x, 53, w),
        "group_norm": lambda x: F.group_norm(planes(x, 4, 8, 8, 9), 2, w[:8], b[:8]),
        "group_norm of long rows": lambda x: F.group_norm(planes(x, 3, 64, 8, 9), 2, many(w), many(b)),
        "instance_norm of long planes": lambda x: F.instance_norm(planes(x, 2, 3, 40, 41), weight=w[:3], bias=b[:3]),
        "batch_norm": lambda x: F.batch_norm(x, None, None, w, b, True),
        "batch_norm of planes": lambda x: F.batch_norm(planes(x, 9, 5, 70), None, None, w[:5], b[:5], True),
        "batch_norm past the cache": lambda x: F.batch_norm(planes(x, 600_000, 8), None, None, w[:8], b[:8], True)[::997],
        "batch_norm of long rows": lambda x: F.batch_norm(planes(x, 300, 1100), None, None, None, None, True),
        "loss": lambda x: F.cross_entropy(x, mg.arange(37)),
        "conv": lambda x: F.conv2d(x[None], w[:45].reshape((5, 1, 3, 3)), b[:5], stride=2, padding=1),
        "conv of whole vectors": lambda x: F.conv2d(x[None, :, :34], w[:27].reshape((3, 1, 3, 3))),
        "max_pool": lambda x: F.max_pool2d(x[None], 2), "avg_pool": lambda x: F.avg_pool2d(x[None], 3, 1, 1),
    }
    for name, f in functions.items():
        y = f(x)
        cotangent = mg.tensor(rng.standard_normal(y.shape).astype(dtype))
        g = [g for g in mg.grad(y, [x, w, b], cotangent, allow_unused=True) if g is not None]
        for k, a in enumerate((y.detach(), *g)):
            found[f"{dtype} {name} {k}"] = a.numpy()
    mg.manual_seed(1)
    found[dtype + " uniform"] = mg.random.uniform(shape=(1001,), dtype=dtype).numpy()
    found[dtype + " normal"] = mg.random.normal(shape=(1001,), dtype=dtype).numpy()
np.savez(sys.argv[1] if len(sys.argv) > 1 else PATH, **found)
"""


def supported():
    """Use the instruction sets of this machine; a request for another one falls back."""
    return [
        isa
        for isa in ("baseline", "avx2", "avx512")
        if python("import minigrad.engine.devices.cpu as c; print(c.isa())", MINIGRAD_ISA=isa) == isa
    ]


def test_instruction_sets_agree(tmp_path):
    sets, found = supported(), {}
    assert "baseline" in sets
    assert cpu.isa() in sets
    if sys.platform == "linux" and os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            flags = file.read().split()
        assert ("avx2" in sets) == ("avx2" in flags and "fma" in flags)
        assert ("avx512" in sets) == ({"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= set(flags))
    for isa in sets:
        path = str(tmp_path / f"{isa}.npz")
        python(f"PATH = {path!r}\n{RESULTS}", MINIGRAD_ISA=isa)
        found[isa] = np.load(path)
        assert found[isa]["isa"] == isa
    for isa in sets[1:]:
        assert set(found[isa]) == set(found["baseline"])
        for name in found[isa]:
            if name != "isa":
                a, b = found["baseline"][name], found[isa][name]
                tolerance = (64 if a.dtype == np.float32 else 256) * np.finfo(a.dtype).eps
                np.testing.assert_allclose(
                    b, a, rtol=tolerance, atol=tolerance * max(1, np.abs(a).max()), err_msg=f"{isa} {name}"
                )


def test_an_unknown_instruction_set_is_ignored():
    assert python("import minigrad.engine.devices.cpu as c; print(c.isa())", MINIGRAD_ISA="nonsense") == python(
        "import minigrad.engine.devices.cpu as c; print(c.isa())"
    )
