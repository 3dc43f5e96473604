"""Helpers to make and call recurrent layers in tests."""

import numpy as np
import pytest

import minigrad as mg

T, N, D, H = 6, 3, 4, 5
KINDS = ("RNN", "LSTM", "GRU")
# The arguments of `minigrad.cuda.recurrent.BlockGroup`; None for products by cuBLAS
BLOCK_GROUPS = {
    "cuda:0 block": (0,), "cuda:0 cache": (0, 1, False), "cuda:0 products": None,
    "cuda:0 cluster": (1, 2), "cuda:0 large cluster": (1, 8), "cuda:0 grid": (2, 3),
}  # fmt: skip


def normals(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def grown(module, seed=0):
    """Convert the module to float64 with larger, random parameters."""
    module.to("float64")
    for number, parameter in enumerate(module.parameters()):
        with mg.no_grad():
            parameter.copy_(mg.tensor(normals((seed, number), parameter.shape)[0]))
    return module


def as_tuple(states):
    return states if isinstance(states, tuple) else (states,)


def called_with(module, parameters, *args, **options):
    """Run the module with other parameters, in the order of its own."""
    modules, names = dict(module.named_modules()), [name.rpartition(".") for name, _ in module.named_parameters()]
    owners = [(vars(modules[path]), name) for path, _, name in names]
    own = [owner[name] for owner, name in owners]
    try:
        for (owner, name), value in zip(owners, parameters, strict=True):
            owner[name] = value
        return module(*args, **options)
    finally:
        for (owner, name), value in zip(owners, own, strict=True):
            owner[name] = value


def use_block_group(monkeypatch, name):
    """Let a GPU run recurrent layers by one of the module."""
    import cupy

    from minigrad.cuda import recurrent

    group = BLOCK_GROUPS[name] and recurrent.BlockGroup(*BLOCK_GROUPS[name])
    if group and group.kind == recurrent.CLUSTER and int(cupy.cuda.Device(0).compute_capability) < 90:
        pytest.skip("a GPU without clusters is tested")

    def choose_group(device=0, dtype="float32", gates=1, hidden=1):
        for backward in (False, True) if group else ():
            plan = recurrent.Plan(group, gates, hidden, dtype, backward, False)
            plan.divide(1, 1, recurrent.limits(device)[1])
            if not plan.fits:
                pytest.skip("a GPU with too little shared memory is tested")
        return group

    monkeypatch.setattr(recurrent, "choose_group", choose_group)
