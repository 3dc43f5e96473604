"""capture: what a replay would not repeat is an error in the recorded call."""

import numpy as np
import pytest
from captured import normal
from checks import agree, raises, refuses

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim


def hooked(x):
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer(x)


def gradient_hook(x):
    y = x.detach().requires_grad_()
    z = y * 2
    z.register_hook(lambda g: None)
    z.sum().backward()


ARRAY = np.ones(3, np.float32)
HOOKED = mg.ones(3, requires_grad=True)


class DLPack:
    """An array of another library, which NumPy does not know."""

    def __dlpack__(self, **options):
        return ARRAY.__dlpack__(**options)

    def __dlpack_device__(self):
        return ARRAY.__dlpack_device__()


@pytest.mark.parametrize("step, message", [
    (lambda x: x.sum().item(), "a tensor whose values are read"),
    (lambda x: x if x.sum() > 0 else -x, "a tensor whose values are read"),
    (lambda x: float(x.sum()), "a tensor whose values are read"),
    (lambda x: str(x), "a tensor whose values are read"),
    (lambda x: x.numpy().sum(), "a tensor whose values are read"),
    (lambda x: np.asarray(x), "a tensor whose values are read"),
    (lambda x: x.tolist(), "a tensor whose values are read"),
    (lambda x: x[x > 0], "nonzero, whose result has a shape that depends on values"),
    (lambda x: x + ARRAY, "a conversion from ndarray"),
    (lambda x: x + mg.tensor(ARRAY), "a conversion from ndarray"),
    (lambda x: x + mg.asarray(ARRAY), "a conversion from ndarray"),
    (lambda x: x + mg.from_dlpack(ARRAY), "from_dlpack of ndarray"),
    (lambda x: x + mg.asarray(DLPack()), "a conversion from DLPack"),
    (lambda x: mg.tensor(x), "tensor with a tensor"),
    (hooked, "a module's hook"),
    (gradient_hook, "a hook"),
    (lambda x: HOOKED.set_(x), "set_"),
    (lambda x: optim.SGD([HOOKED], 0.1).step(lambda: None), "SGD.step with arguments"),
    (lambda x: optim.LBFGS([HOOKED]).step(lambda: (HOOKED * x).sum()), "LBFGS.step with arguments"),
])  # fmt: skip
def test_what_would_not_be_repeated(step, message):
    captured = mg.capture(step, warmup=0)
    x = mg.ones(3)
    with pytest.raises(
        mg.CaptureError,
        match=rf"\[capture\] expected a step that runs again without Python, got {message}.*, at .*test_capture_errors.py:\d+",
    ):
        captured(x)
    # nothing is left of the attempt
    assert mg.capture(lambda x: x * 2, warmup=0)(x).tolist() == [2, 2, 2]
    assert x.sum().item() == 3


def test_other_errors(rng):
    x = mg.ones(3)
    refuses(TypeError, "capture", "expected a function, got int", mg.capture, 3)
    refuses(ValueError, "capture", "expected warmup >= 0, got -1", mg.capture, abs, warmup=-1)
    refuses(TypeError, "capture", "expected tensors as arguments, got ndarray", mg.capture(mg.exp), ARRAY)
    refuses(TypeError, "capture", ["expected arguments that are tensors", "got set"], mg.capture(lambda s: x), {1})
    refuses(ValueError, "capture", "expected arguments that do not require grad", mg.capture(mg.exp), HOOKED)
    with pytest.raises(mg.CaptureError, match=r"\[capture\] expected a step that leaves its arguments as they are"):
        mg.capture(lambda x: x.add_(1), warmup=0)(x)
    with pytest.raises(mg.CaptureError, match=r"\[capture\] expected a step that returns tensors.*got object"):
        mg.capture(lambda x: object(), warmup=0)(x)


def carried(box):
    def step(x):
        box["h"] = (box["h"] * 0.5 + x).tanh()
        return box["h"].sum()

    return step


def kept_for_later(box):
    def step(x):
        if "b" not in box:
            box["b"] = mg.zeros(3)
        box["b"] += x
        return box["b"].sum()

    return step


def logged(box):
    def step(x):
        box.setdefault("log", []).append(x.sum())

    return step


@pytest.mark.parametrize("make", [carried, kept_for_later, logged])
def test_a_step_that_stores_what_is_overwritten(make):
    match = r"expected a step that keeps no tensor of a run.*stores \d+ bytes outside"
    raises(mg.CaptureError, match, mg.capture(make({"h": mg.ones(3)}), warmup=0), mg.ones(3))


def test_arguments_that_the_step_changes(rng):
    model = nn.Linear(3, 3)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x, w):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        return (w * 2).sum()

    with pytest.raises(mg.CaptureError, match="expected arguments with memory of their own"):
        mg.capture(step, warmup=0)(mg.ones((4, 3)), model.weight.detach())
    captured = mg.capture(step, warmup=0)
    captured(mg.ones((4, 3)), mg.ones((3, 3)))
    with pytest.raises(mg.CaptureError, match="expected arguments with memory of their own"):
        captured(mg.ones((4, 3)), model.weight.detach())
    with pytest.raises(mg.CaptureError, match=r"lets an argument of shape .* require grad"):
        mg.capture(lambda x: x.requires_grad_().sum(), warmup=0)(mg.ones(3))


def test_labels_and_indices_are_checked_in_each_run(rng, device):
    logits, table = normal(rng, 4, 3).to(device), normal(rng, 5, 2).to(device)
    loss = mg.capture(lambda y: F.cross_entropy(logits, y), warmup=0)
    rows = mg.capture(lambda i: F.embedding(i, table), warmup=0)
    for step in (loss, rows):
        step(mg.tensor([0, 1, 2, 1], device=device))
        raises(
            IndexError, "got 7|index 7", lambda y, step=step: step(y).to("cpu"), mg.tensor([0, 1, 7, 1], device=device)
        )
    y = mg.tensor([2, 2, 0, 1], device=device)
    assert loss(y).item() == F.cross_entropy(logits, y).item()
    agree([rows(y)], [table[y]])
    assert loss.recordings == rows.recordings == 1


def test_an_error_of_the_recorded_call_leaves_nothing(rng):
    def step(x, fails):
        y = x * 2
        if fails:
            raise ArithmeticError("of the step")
        return y

    captured = mg.capture(step, warmup=0)
    with pytest.raises(ArithmeticError):
        captured(mg.ones(3), True)
    assert captured(mg.ones(3), False).tolist() == [2, 2, 2]
    assert captured.recordings == 1
