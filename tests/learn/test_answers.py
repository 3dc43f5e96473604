"""The checks of the course: solutions pass, and every mistake is named, those that were foreseen by their own message."""

import ast
import sys
from importlib import import_module

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.learn import checking
from minigrad.learn.course import STAGES, Stage
from minigrad.learn.stages import ln_lstm

SOLUTIONS = {name: import_module(f"minigrad.learn.stages.{name}") for name in STAGES}
MISTAKES = [
    pytest.param(name, part.name, message, answer, id=f"{name}-{part.name}-{i}")
    for name in STAGES
    for part in Stage(name).parts
    for i, (message, answers) in enumerate(part.wrong.items())
    for answer in answers
]


def words(text):
    return " ".join(str(text).split())


def check(name, **answers):
    return checking.run(name, Stage(name).parts, answers)


@pytest.mark.parametrize("name", STAGES)
def test_solution_is_right(name):
    report = check(name, **vars(SOLUTIONS[name]))
    assert report, report
    properties = [line for line in str(report).splitlines() if line.startswith("  ok ")]
    assert len(properties) >= len(Stage(name).functions)
    assert all(len(line) <= checking.COLUMNS for line in str(report).splitlines())


@pytest.mark.parametrize("name, function, message, answer", MISTAKES)
def test_foreseen_mistake_is_named(name, function, message, answer):
    report = check(name, **{function: answer})
    assert not report
    assert words(message) in words(report)
    others = [words(m) for part in Stage(name).parts for m in part.wrong if words(m) not in words(message)]
    assert [other for other in others if other in words(report)] == []
    assert all(len(line) <= checking.COLUMNS for line in str(report).splitlines())


@pytest.mark.parametrize("name", STAGES)
def test_file_of_the_reader_waits_for_its_answer(name):
    """A stage begins with functions to be written, or with the bug that it is about, and shows none of its marks."""
    given = {}
    exec(Stage(name).text, given)
    report = check(name, **given)
    assert not report
    assert "still to be written" in str(report) or "This is the bug." in words(report)
    assert ("This is the bug." in words(report)) == name.startswith("bug_")
    assert all(len(line) <= checking.COLUMNS for line in Stage(name).text.splitlines())
    assert 2 <= len(Stage(name).hints) <= 6
    assert all(mark not in Stage(name).text + Stage(name).solution for mark in ("# yours", "# ours", "# bug"))


def test_ln_lstm_is_that_of_nn(rng):
    """The stage's equations are those of nn.LSTM with norms that have not been trained."""
    layer = nn.LSTM(3, 4, norm="layer", dtype="float64")
    x, h, c = (rng.standard_normal((2, size)) for size in (3, 4, 4))
    weights = [value.detach().numpy() for value in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0)]
    found = ln_lstm.step(x, h, c, *weights)
    _, (h, c) = layer(mg.tensor(x[None]), (mg.tensor(h[None]), mg.tensor(c[None])))
    np.testing.assert_allclose(found, [h[0].detach().numpy(), c[0].detach().numpy()], rtol=1e-12)


def test_edit_that_fits_nowhere_raises():
    with pytest.raises(LookupError, match=r"^'sums' is not in .*linear.py"):
        checking.mistakes(SOLUTIONS["linear"].linear_backward, {"message": {"sums": "mean"}})


# ── mistakes that nobody foresaw ──────────────────────────────────────────────────────────────────


def changed(i, change):
    """The right gradients of the linear layer with one of them changed."""

    def linear_backward(g, x, w):
        found = list(SOLUTIONS["linear"].linear_backward(g, x, w))
        found[i] = change(found[i])
        return tuple(found)

    return linear_backward


@pytest.mark.parametrize("i, change, message", [
    (0, lambda a: -a, "wrong linear_backward: the gradient of x Only its sign is wrong."),
    (1, lambda a: 3 * a, "It is 3 times the right one, in every case."),
    (2, lambda a: a / len(a) / 7, "wrong linear_backward: the gradient of b The smallest case that shows it:"),
    (0, lambda a: a + 1 if a.ndim < 3 else a - np.inf, "got = [[[-inf"), (2, lambda a: a * np.nan, "It is not finite."),
    (2, lambda a: a[:, None], "The shape is (3, 1); it has to be (3,)."),
    (1, lambda a: a.astype("float32"), "It returns the gradient of w as float32; it has to be float64."),
    (0, mg.tensor, "It returns the gradient of x as a minigrad tensor; this stage is about NumPy arrays."),
])  # fmt: skip
def test_any_wrong_output_is_described(i, change, message):
    report = check("linear", linear_backward=changed(i, change))
    assert not report
    assert message in words(report)


@pytest.mark.parametrize(
    "answer, message",
    [
        (lambda g, x, w: None, "It returns None: is a `return` missing?"),
        (lambda g, x, w: (g, x), "It returns 2 values; it has to return 3: the gradient of x, the gradient of w"),
        (lambda g, x, w: g, "It returns one ndarray; it has to return 3"),
        (
            lambda g, x, w: SOLUTIONS["linear"].linear_backward(g, x, w)[::-1],
            "Are the values returned in the right order?",
        ),
        (
            lambda g, x, w: SOLUTIONS["linear"].linear_backward(g, np.multiply(x, 2, out=x), w),
            "It writes into its argument x",
        ),
        (
            lambda g, x, w: SOLUTIONS["linear"].linear_backward(np.ones_like(g), x, w),
            "right only if the cotangent g is all ones",
        ),
    ],
)
def test_any_wrong_return_is_described(answer, message):
    report = check("linear", linear_backward=answer)
    assert not report
    assert message in words(report)


@pytest.mark.parametrize(
    "name, function, change",
    [
        ("cross_entropy", "cross_entropy", lambda loss: loss + 1),  # any number is a multiple of any other
        ("rnn", "rnn_backward", lambda d: (d[0], 0 * d[1], *d[2:])),  # the gradient of x has what comes back in time
    ],
)
def test_no_cause_is_named_without_evidence(name, function, change):
    report = check(name, **{function: lambda *a: change(getattr(SOLUTIONS[name], function)(*a))})
    lines = str(report).splitlines()
    assert not report
    assert lines[lines.index("") + 1] in ("The smallest case that shows it:", "It is zero in every case.")


def test_smallest_case_is_shown():
    report = check("broadcasting", multiply_backward=lambda g, a, b: (g.sum() * np.ones_like(a), b))
    assert str(report).splitlines() == [
        "broadcasting", "  wrong  multiply_backward: the gradient of a", "", "The smallest case that shows it:",
        "    g        = [8., 3.]", "    a        = [7., 2.]", "    b        = [-5.,  6.]",
        "    expected = [-40.,  18.]", "    got      = [11., 11.]",
    ]  # fmt: skip


def test_cotangent_of_a_derivative_is_shown():
    """With what is printed, the expected gradient can be computed again."""
    given = {}
    exec(Stage("bug_gradient").text, given)
    report = check("bug_gradient", layer_norm=given["layer_norm"])
    lines = dict(line.split(" = ") for line in str(report).splitlines() if " = " in line)
    values = {name.strip(): np.array(ast.literal_eval(value)) for name, value in lines.items() if "got" not in name}
    x = mg.tensor(values["x"], requires_grad=True)
    y = mg.layer_norm(x, 2, mg.tensor(values["weight"]), mg.tensor(values["bias"]), values["eps"].item())
    np.testing.assert_allclose(mg.grad(y, x, mg.tensor(values["cotangent"])).numpy(), values["expected"], atol=1e-5)


@pytest.mark.parametrize(
    "name, answers, message",
    [
        ("adamw", {"adamw": lambda p, *rest: (p * np.nan, p, p)}, "It is not finite."),
        ("adamw", {"adamw": lambda *a: (0, 0, 0)}, "It has to return three arrays: the new p, m and v."),
        ("bug_parameters", {"LayerNorm": lambda width: nn.Sequential()}, "hold its tensors weight and bias"),
        ("linear", {"linear_backward": lambda g, x, w: sys.exit(0)}, "RuntimeError: exit() ends Python"),
        (
            "tape",
            {"Value": type("Value", (SOLUTIONS["tape"].Value,), {"__mul__": lambda a, b: a.data * getattr(b, "data", b)})},
            "y is float. Every operation has to return a Value, with its inputs and partials.",
        ),
        ("linear", {"linear_backward": lambda g, x, w: (g @ w.T, g.T @ x, g.sum(0))}, "The shapes of g and w do not fit"),
        ("linear", {"linear_backward": lambda g, x, w: (g @ w, g.T @ x, g.sum(0))}, "The shapes of g and x do not fit"),
        ("training", {"train_epoch": lambda *a: None}, "call = train_epoch(model, optimizer, batches) model = x @ weight;"),
    ],
)  # fmt: skip
def test_what_stops_a_check_is_described(name, answers, message):
    report = check(name, **answers)
    assert not report
    assert message in words(report)


def test_traceback_is_that_of_the_reader():
    def helper(x):
        return x @ mg.ones((7, 7))

    def linear_backward(g, x, w):
        return helper(mg.tensor(x))

    text = str(check("linear", linear_backward=linear_backward))
    assert "in linear_backward\n        return helper(mg.tensor(x))\n" in text
    assert "in helper\n        return x @ mg.ones((7, 7))\n    ValueError: [matmul]" in text
    assert "checking.py" not in text
    assert "outcome" not in text


def test_endless_loop_is_stopped(monkeypatch):
    def linear_backward(g, x, w):
        while True:
            pass

    (part,) = Stage("linear").parts
    object.__setattr__(part, "seconds", 0.2)
    try:
        report = check("linear", linear_backward=linear_backward)
    finally:
        object.__setattr__(part, "seconds", 10.0)
    assert "wrong  linear_backward: no result" in str(report)
    assert "TimeoutError: no result after 0.2 s: does a loop never end?" in words(report)


def test_tensors_are_required_and_what_leaves_the_tape_is_noticed():
    answer = SOLUTIONS["layer_norm"].layer_norm
    report = check("layer_norm", layer_norm=lambda *a: answer(*a).detach().numpy())
    assert "It returns y of type ndarray; it has to be a minigrad tensor." in words(report)
    report = check("layer_norm", layer_norm=lambda *a: answer(*a).detach())
    assert "wrong layer_norm: the derivative with respect to x Nothing arrives at x." in words(report)


def guess(images, labels):
    mg.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def train_briefly(images, labels):
    model = guess(images, labels)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for _ in range(30):
        SOLUTIONS["training"].train_epoch(model, optimizer, [(images, labels)])
    return model


@pytest.mark.parametrize("fit, message", [
    (guess, "hardly more than by guessing"), (train_briefly, "95% are needed"),
    (lambda images, labels: 0.99, "fit returns a float; it has to return the trained network"),
])  # fmt: skip
def test_training_that_does_not_suffice(fit, message):
    report = check("training", fit=fit)
    assert not report
    assert message in words(report)
