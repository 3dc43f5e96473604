"""The figures that a reader can touch show the numbers of minigrad, whatever is set, typed or misspelt."""

import math
import re

import numpy as np
import pytest
from figure_pages import attributes, number, numbers, tensor
from test_site import DOCS, pytestmark  # noqa: F401

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

# ── the same numbers as minigrad's ────────────────────────────────────────────────────────────────


def layer_norm_of(case):
    """y and dL/dx of one row by minigrad."""
    x, weight, bias = tensor(case["x"], requires_grad=True), tensor(case["gamma"]), tensor(case["beta"])
    y = F.layer_norm(x, x.shape, weight, bias, eps=case["eps"])
    y.backward(tensor(case["upstream"]))
    return y.detach().numpy(), x.grad.numpy()


def test_layer_norm_computes_what_minigrad_does(visit, rng):
    cases = []
    for eps in (0.0, 1e-5, 0.1, 10.0):
        for _ in range(50):
            case = {name: rng.normal(0, 3, 5).tolist() for name in ("x", "gamma", "beta", "upstream")}
            cases.append(case | {"eps": eps})
    shown = visit("layer_norm").evaluate("(cases) => cases.map(figures.layer_norm.compute)", cases)
    for case, found in zip(cases, shown, strict=True):
        y, dx = layer_norm_of(case)
        np.testing.assert_allclose(found["y"], y, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found["dx"], dx, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(
            [found["mu"], found["variance"]], [np.mean(case["x"]), np.var(case["x"])], rtol=1e-12
        )


def test_layer_norm_shows_what_the_sliders_say(visit, rng):
    tab = visit("layer_norm")
    stops = [0, 1e-5, 1e-3, 0.1, 1, 10]
    for k in range(len(stops)):
        case = {"eps": stops[k]}
        for key, name, reach in (("x", "x", 8), ("gamma", "γ", 2), ("beta", "β", 2), ("upstream", "dL/dy", 2)):
            case[key] = (rng.integers(-8, 9, 5) * reach / 8 / 2).round(1) if key == "x" else rng.integers(-8, 9, 5) / 4
            for i, value in enumerate(case[key]):
                tab.get_by_role("slider", name=f"{name} {i + 1}", exact=True).fill(f"{value:g}")
        tab.get_by_role("slider", name="ε", exact=True).fill(str(k))
        y, dx = layer_norm_of(case)
        shown = numbers(tab.locator(".live .unit"))
        np.testing.assert_allclose(shown[5:], [*y, *dx], atol=5.1e-4)
        said = tab.inner_text(".says")
        assert "Sum of dL/dx: 0.000000." in said
        dot = number(re.search(r"\(x − μ\): (\S+)\.$", said)[1])
        assert dot == pytest.approx(dx @ (case["x"] - case["x"].mean()), abs=5.1e-7)
        assert k or dot == 0
    for i in range(5):
        tab.get_by_role("slider", name=f"x {i + 1}", exact=True).fill("3")
    tab.get_by_role("slider", name="ε", exact=True).fill("0")
    assert "the variance is 0" in tab.inner_text(".says")
    assert set(tab.locator(".live .unit").all_inner_texts()) == {"NaN"}


def norm_of(name, groups):
    """The module of a choice in the figure of the axes."""
    return {
        "BN": nn.BatchNorm1d(4, affine=False, dtype="float64"),
        "LN": nn.LayerNorm((4, 2), elementwise_affine=False, dtype="float64"),
        "IN": nn.InstanceNorm1d(4, dtype="float64"),
        "GN": nn.GroupNorm(groups, 4, affine=False, dtype="float64"),
    }[name]


@pytest.mark.parametrize("norm, groups", [("BN", 2), ("LN", 2), ("IN", 2), ("GN", 1), ("GN", 2), ("GN", 4)])
def test_axes_have_the_sets_and_the_outputs_of_minigrad(visit, rng, norm, groups):
    tab, module = visit("axes"), norm_of(norm, groups)
    cases = [{"x": x.tolist(), "norm": norm, "groups": groups} for x in rng.normal(2, 5, (30, 3, 8))]
    for case, found in zip(cases, tab.evaluate("(cases) => cases.map(figures.axes.compute)", cases), strict=True):
        y = module(tensor(case["x"]).reshape(3, 4, 2)).detach().numpy()
        np.testing.assert_allclose(found["y"], y.reshape(3, 8), rtol=1e-12, atol=1e-12)

    # through the page: choose the norm and a cell, then type another number there
    tab.get_by_role("radio", name=norm, exact=True).check()
    if norm == "GN":
        tab.get_by_role("radio", name=str(groups), exact=True).check()
    for n, c, p in ((0, 0, 0), (1, 3, 1), (2, 2, 0)):
        tab.get_by_label(f"sample {n + 1}, channel {c + 1}, position {p + 1}").fill("2.5")
        x = np.array([number(cell.input_value()) for cell in tab.locator(".block input").all()]).reshape(3, 4, 2)
        leaf = tensor(x, requires_grad=True)
        module(leaf)[n, c, p].backward()
        members = leaf.grad.numpy() != 0
        for table in tab.locator(".block").all():
            classes = [cell.get_attribute("class") for cell in table.locator("tbody td").all()]
            assert [("shares" in name) for name in classes] == members.ravel().tolist()
            assert [k for k, name in enumerate(classes) if "chosen" in name] == [n * 8 + c * 2 + p]
        shown = numbers(tab.locator(".block").nth(1).locator("tbody td"))
        np.testing.assert_allclose(shown, module(tensor(x)).detach().numpy().ravel(), atol=5.1e-3)
        said = tab.inner_text(".says")
        size, mu, sigma = re.search(r"(\d+) numbers with mean μ = (\S+) and deviation σ = (\S+)\.$", said).groups()
        assert int(size) == members.sum()
        np.testing.assert_allclose([number(mu), number(sigma)], [x[members].mean(), x[members].std()], rtol=6e-4)


def test_batches_have_the_statistics_of_minigrad(visit):
    tab = visit("batch_noise")
    draw = "([seed, m, count]) => figures.batch_noise.draw_batches(seed, m, count)"
    for m in (2, 3, 16, 100):
        for batch in tab.evaluate(draw, [m, m, 20]):
            x = tensor(batch["x"]).reshape(m, 1)
            normalized = (np.array(batch["x"]) - batch["mu"]) / batch["sigma"]
            expected = F.batch_norm(x, None, None, training=True, eps=0.0).numpy().ravel()
            np.testing.assert_allclose(normalized, expected, rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(
                [batch["mu"], batch["sigma"] ** 2], [x.mean().item(), x.var().item()], rtol=1e-9, atol=1e-15
            )
    many = [value for batch in tab.evaluate(draw, [5, 100, 200]) for value in batch["x"]]
    below = np.array([(1 + math.erf(x / 2**0.5)) / 2 for x in sorted(many)])
    steps = np.arange(len(many) + 1) / len(many)
    distance = max(abs(below - steps[:-1]).max(), abs(below - steps[1:]).max())
    assert distance < 1.63 / len(many) ** 0.5  # the test of Kolmogorov and Smirnov at 1 %
    assert abs(np.corrcoef(many[1:], many[:-1])[0, 1]) < 3 / len(many) ** 0.5
    assert tab.evaluate(draw, [5, 4, 2]) == tab.evaluate(draw, [5, 4, 2]) != tab.evaluate(draw, [6, 4, 2])


def test_batches_follow_the_law(visit):
    """The spread shown for each size is that of the batches, and close to 1/√m and 1/√(2m)."""
    tab = visit("batch_noise")
    slider = tab.get_by_label("batch size m")
    before = None
    for k in range(1, 11):
        slider.fill(str(k))
        said = tab.inner_text(".says")
        size, *found = re.search(r"of (\d+):.* by (\S+), .* is (\S+);.* by (\S+), .* is (\S+)\.$", said).groups()
        mu, root, sigma, root2 = map(number, found)
        assert int(size) == 2**k
        np.testing.assert_allclose([root, root2], [2 ** (-k / 2), 2 ** (-(k + 1) / 2)], rtol=6e-3)
        assert mu == pytest.approx(root, rel=0.15)  # three deviations of the spread of 200 batches
        assert sigma == pytest.approx(root2, rel=0.15) or k < 4  # the law holds for large m
        dots = attributes(tab.locator("[data-figure] figure").first.locator(".dot"), "cx", "cy")
        means, deviations = (dots - [188, 140]).T / [[72], [-60]]
        assert np.sqrt((means**2).mean()) == pytest.approx(mu, rel=6e-3)
        assert np.sqrt(((deviations - 1) ** 2).mean()) == pytest.approx(sigma, rel=6e-3)
        before = said
    tab.get_by_role("button", name="Draw again").click()
    assert tab.inner_text(".says") != before


def recurrence_of(case):
    """The states and the gradients of all states by minigrad."""
    W, h = tensor(case["W"]), mg.zeros(len(case["c"]), dtype="float64").requires_grad_()
    states = []
    for x in case["x"]:
        a = case["s"] * (W @ h) + tensor(x)
        h = mg.tanh(F.layer_norm(a, a.shape) if case["norm"] else a)
        states.append(h)
    grads = mg.grad((h * tensor(case["c"])).sum(), states)
    return np.array([state.detach().numpy() for state in states]), np.array([grad.numpy() for grad in grads])


def test_recurrence_computes_what_minigrad_does(visit, rng):
    cases = [
        {"W": rng.normal(0, 0.4, (5, 5)).tolist(), "x": rng.normal(0, 1, (8, 5)).tolist(), "c": rng.normal(0, 1, 5).tolist(),
         "s": rng.uniform(0.2, 3), "norm": norm}
        for norm in (False, True) for _ in range(40)
    ]  # fmt: skip
    shown = visit("recurrence").evaluate("(cases) => cases.map(figures.recurrence.compute)", cases)
    for case, found in zip(cases, shown, strict=True):
        states, grads = recurrence_of(case)
        np.testing.assert_allclose(found["states"], states, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(found["grads"], grads, rtol=1e-8, atol=1e-10 * abs(grads).max())


def test_recurrence_shows_what_the_controls_say(visit):
    """Without a norm the state vanishes for small s and the gradient explodes for large s; with LN, s has no effect."""
    tab, said = visit("recurrence"), {}
    given = tab.evaluate("figures.recurrence.start(3)")
    for norm in (False, True):
        tab.get_by_role("radio", name="LN" if norm else "none").check()
        for s in (0.5, 1, 4):
            tab.get_by_label("scale s of W").fill(str(s))
            found = re.findall(r"(?:from|to) (\d\S*)", tab.inner_text(".says"))
            said[norm, s] = [number(text) for text in found]
            lengths = [np.linalg.norm(part, axis=1) for part in recurrence_of(given | {"s": s, "norm": norm})]
            expected = [lengths[0][0], lengths[0][-1], lengths[1][-1], lengths[1][0]]
            np.testing.assert_allclose(said[norm, s], expected, rtol=0.06)  # two digits
            for panel, values in zip(tab.locator("[data-figure] figure").all(), lengths, strict=True):
                decades = [
                    (64 - y if y < 63.9 else -height) / 6
                    for y, height in attributes(panel.locator("rect"), "y", "height")
                ]
                np.testing.assert_allclose(decades, np.clip(np.log10(values), -14, 9), atol=0.1)
    assert said[False, 0.5][1] < 1e-9
    assert said[False, 4][3] > 1e6
    assert said[True, 0.5] == said[True, 1] == said[True, 4]


NAMES = ("exp", "log", "sqrt", "tanh", "sigmoid", "sin", "cos")
SCOPE = {name: getattr(mg, name) for name in NAMES}


def expression(rng, depth):
    """A random expression of a, b and numbers, with or without parentheses."""
    if depth == 0:
        return str(rng.choice(["a", "b", "a", "b", "2", "0.5", ".25", "1e-1"]))
    kind = rng.integers(8)
    if kind == 0:
        return f"{rng.choice(NAMES)}({rng.choice(['a', 'b'])} {rng.choice(['+', '*'])} {expression(rng, depth - 1)})"
    if kind == 1:
        return f"-{expression(rng, depth - 1)}"
    if kind == 2:
        return f"({expression(rng, depth - 1)})"
    if kind == 3:
        return f"{rng.choice(['a', 'b', '(a + b)', '(a*b)'])}**{rng.choice(['2', '3', '-1', '-2', '0.5', 'a', 'b'])}"
    return f"{expression(rng, depth - 1)} {rng.choice(['+', '-', '*', '/'])} {expression(rng, depth - 1)}"


def test_tape_is_the_one_that_minigrad_records(visit, rng):
    """The same operations in the same order, the same value, and the same gradients; Python parses the expressions."""
    cases = []
    while len(cases) < 300:
        text = expression(rng, int(rng.integers(1, 5)))
        if len(text) <= 80:
            cases.append([text, rng.uniform(0.2, 2, 2).round(3).tolist()])
    shown = visit("tape").evaluate(
        "(cases) => cases.map(([text, [a, b]]) => figures.tape.compute(text, { a, b }))", cases
    )
    compared, names = 0, set()
    for (text, values), found in zip(cases, shown, strict=True):
        leaves = {name: tensor(value, requires_grad=True) for name, value in zip("ab", values, strict=True)}
        result = eval(text, {"__builtins__": {}}, SCOPE | leaves)
        if not isinstance(result, mg.Tensor) or len(result.tape()) == 1:
            assert "expected an operation on a or b" in found["error"], text
            continue
        tape = result.tape()
        special = {"square": "power", "reciprocal": "power"}
        assert [row["op"] for row in found["rows"]] == [special.get(row["op"], row["op"]) for row in tape], text
        place = {row["name"]: k for k, row in enumerate(found["rows"])}
        order = {k: "ab".index(row["name"]) for k, row in enumerate(found["rows"][: found["leaves"]])}
        assert sorted(order.values()) == list(order.values())
        np.testing.assert_allclose(found["rows"][-1]["value"], result.item(), rtol=1e-12, err_msg=text)
        result.backward()
        for name in leaves:
            grad = leaves[name].grad
            assert (name in place) is (grad is not None)
            if grad is not None:
                shares = [abs(s["share"]) for sent in found["sent"] for s in sent if s["to"] == name]
                exact = found["rows"][place[name]]["grad"]
                np.testing.assert_allclose(exact, grad.item(), rtol=1e-12, atol=1e-13 * max(shares), err_msg=text)
                compared += 1
        names |= {row["op"] for row in tape}
    assert compared > 200
    assert names > {"add", "subtract", "multiply", "divide", "power", "negative", *NAMES}


def test_tape_is_walked_step_by_step(visit):
    tab = visit("tape")
    tab.get_by_label("L =").fill("a*b + b")
    tab.get_by_label("a", exact=True).fill("-2")
    tab.get_by_label("b", exact=True).fill("3")
    slider, said, seen = tab.get_by_label("step", exact=True), [], []
    slider.press("Home")
    for _ in range(5):
        said.append(tab.inner_text(".says"))
        seen.append(
            [
                [text.replace("−", "-") for text in row.locator("td").all_inner_texts()[1:]]
                for row in tab.locator("tbody tr").all()
            ]
        )
        slider.press("ArrowRight")
    assert seen == [
        [["-2", ""], ["3", ""], ["", ""], ["", ""]], [["-2", ""], ["3", ""], ["-6", ""], ["", ""]],
        [["-2", ""], ["3", ""], ["-6", ""], ["-3", "1"]], [["-2", ""], ["3", "1"], ["-6", "1"], ["-3", "1"]],
        [["-2", "3"], ["3", "-1"], ["-6", "1"], ["-3", "1"]],
    ]  # fmt: skip
    assert said[3] == "Backward, v2 = v1 + b sends 1 · 1 = 1 to v1 and 1 · 1 = 1 to b."
    tab.get_by_role("button", name="Step back").click()
    assert tab.inner_text(".says") == said[3]
    tab.get_by_role("button", name="Step on").click()
    assert tab.inner_text(".says") == said[4]


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name, label", [("axes", "sample 2, channel 1, position 2"), ("tape", "b")])
def test_a_field_without_a_number_is_said(visit, name, label):
    tab = visit(name)
    field = tab.get_by_label(label, exact=True)
    kept = field.input_value()
    results = tab.locator(".live table").last.locator("tbody td")
    for text in ("", "  ", "a", "1e999", "--1", "1,5", "0x10", "Infinity", "NaN", "99.5", "<b>1</b>"):
        field.fill(text)
        got = f"“{text}”" if text.strip() else "nothing"
        assert tab.inner_text(".says") == f"{label}: expected a number from −99 to 99, got {got}."
        assert field.get_attribute("aria-invalid") == "true"
        assert set(results.all_inner_texts()) <= {"–"}
        field.press("ArrowUp")
        assert field.input_value() == text
        field.fill(kept)
        assert field.get_attribute("aria-invalid") == "false"
        assert "expected" not in tab.inner_text(".says")
        assert len(results.all_inner_texts()) > 8
        assert not {"–", "NaN"} & set(results.all_inner_texts())


def test_an_expression_that_cannot_be_read_says_what_was_expected(visit):
    functions = "expected a, b, exp, log, sqrt, tanh, sigmoid, sin, cos, got "
    tab = visit("tape")
    field = tab.get_by_label("L =")
    for text, expected in (
        ("", "expected a number, a, b, a function or “(”, got the end"),
        ("a +", "expected a number, a, b, a function or “(”, got the end"),
        ("a + * b", "expected a number, a, b, a function or “(”, got “*”"),
        ("(a + b", "expected “)” or another operation, got the end"),
        ("a + b)", "expected an operation or the end, got “)”"),
        ("2 a", "expected an operation or the end, got “a”"),
        ("exp a", "expected “(” after exp, got “a”"),
        ("foo(a)", functions + "“foo”"),
        ("constructor(a)", functions + "“constructor”"),
        ("c*a", functions + "“c”"),
        ("a^2", "expected numbers, a, b, functions and + - * / ** ( ), got “^”: a power is written **"),
        ("a = b", "expected numbers, a, b, functions and + - * / ** ( ), got “=”"),
        ("1e999*a", "expected a number below 1e308, got 1e999"),
        ("2 + 3", "expected an operation on a or b, such as a*b"),
        ("a", "expected an operation on a or b, such as a*b"),
        ("<img src=x>", "expected numbers, a, b, functions and + - * / ** ( ), got “<”"),
    ):
        field.fill(text)
        assert tab.inner_text(".says") == f"L: {expected}."
        assert field.get_attribute("aria-invalid") == "true"
        assert tab.locator(".live tbody tr").count() == 0
        field.fill("a*a")
        assert field.get_attribute("aria-invalid") == "false"
        assert tab.locator(".live tbody tr").count() == 2


def test_values_that_are_no_numbers_are_shown_as_such(visit):
    tab = visit("tape")
    tab.get_by_label("L =").fill("log(b) / (a - 2)")
    assert "NaN" in tab.locator("[data-figure] tbody").inner_text()
    tab.get_by_label("L =").fill("1 / (a - 2)")
    assert "∞" in tab.locator("[data-figure] tbody").inner_text()
    found = tab.evaluate("figures.tape.compute('('.repeat(5000) + 'a', { a: 1, b: 1 })")
    assert found == {"error": "L: expected at most 80 characters, got 5001."}


# ── without JavaScript ───────────────────────────────────────────────────────────────────────────


def still(visit, name):
    """The table that readers without JavaScript see in place of a figure, as texts: a list of rows."""
    table = visit(name, scripts=False).locator("[data-figure] table")
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def test_tables_without_javascript_are_right(visit):
    """The numbers in them are those of minigrad, to the last digit that they show."""
    tables = {name: still(visit, name) for name in ("axes", "layer_norm", "batch_noise", "recurrence", "tape")}

    x = tensor(np.random.default_rng(0).normal(size=(3, 4, 2)), requires_grad=True)
    for norm, _, count in tables["axes"]:
        (gradient,) = mg.grad(norm_of(norm[:2], 2)(x)[1, 1, 0], [x])
        assert int(count) == (gradient.numpy() != 0).sum()

    rows = [list(map(number, row[1:])) for row in tables["layer_norm"]]
    case = {"x": rows[0], "gamma": [1] * 5, "beta": [0] * 5, "eps": 0.0, "upstream": [0, 0, 1, 0, 0]}
    np.testing.assert_allclose(rows[1:], layer_norm_of(case), rtol=5e-3)
    sliders = visit("layer_norm").get_by_role("slider").all()
    assert [number(slider.input_value()) for slider in sliders] == [*rows[0], *[1] * 5, *[0] * 5, 0, 0, 1, 0, 0, 0]

    m = numbers(visit("batch_noise", scripts=False).locator("[data-figure] thead th:not(:first-child)"))
    means, deviations = (np.array(list(map(number, row[1:]))) for row in tables["batch_noise"])
    np.testing.assert_allclose([means, deviations], [m**-0.5, (2 * m) ** -0.5], rtol=2e-3)

    given = visit("recurrence").evaluate("figures.recurrence.start(3)")
    for norm, s, *shown in tables["recurrence"]:
        states, grads = recurrence_of(given | {"s": number(s), "norm": norm == "LN"})
        lengths = np.linalg.norm([states[0], states[-1], grads[-1], grads[0]], axis=1)
        np.testing.assert_allclose(list(map(number, shown)), lengths, rtol=3e-2)

    tab = visit("tape")
    tab.get_by_role("slider", name="step").press("End")
    rows = [row.locator("th, td").all_inner_texts() for row in tab.locator(".live tbody tr").all()]
    assert [[name, value, grad.split(" = ")[-1]] for name, _, value, grad in tables["tape"]] == [
        [*row[:1], *row[2:]] for row in rows
    ]
