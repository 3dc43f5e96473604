"""Helpers of the tests of `minigrad.capture`."""

import warnings

from checks import agree

import minigrad as mg


def normal(rng, *shape):
    return mg.tensor(rng.standard_normal(shape).astype("float32"))


def bits(tensors):
    return [x.detach().to("cpu").numpy().copy() for x in tensors]


def run(step, *args):
    mg.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the results of .* have no history")
        warnings.filterwarnings("ignore", r"\[capture\] the results of")
        return step(*args)


def check(step, change, *args, captured=None):
    """Compare a captured function with the plain one, before and after a change."""
    captured = captured or mg.capture(step, warmup=0)
    x, results = mg.tensor([[1.0, 2, 3], [4, 5, 7]]), []
    for changed in (False, True):
        if changed:
            change()
        results.append(run(step, x, *args))
        for _ in range(3):
            agree(bits([run(captured, x, *args)]), bits(results[-1:]))
    assert results[0].tolist() != results[1].tolist()
    assert captured.recordings == 2
