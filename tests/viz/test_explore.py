"""The data of a tape's page: original values, gradients, memory, equations, in JSON that handles any text."""

import html
import json
import math
import os
import re
import time
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from checks import Cube, doubling, raises, refuses
from pages import content, numbers, shown

import minigrad as mg
from minigrad import nn, viz
from minigrad.engine.memory import listener
from minigrad.nn import functional as F
from minigrad.viz.values import describe


def normalized_mlp():
    mg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3))
    return model, mg.random.normal(0, 1, (4, 6)), mg.tensor([0, 1, 2, 1])


# ── values and gradients ──────────────────────────────────────────────────────────────────────────


def test_values_and_gradients_are_those_of_the_pass(device):
    model, x, y = normalized_mlp()
    model.to(device)
    with viz.record():
        trunk = model[:3]
        hidden = trunk(x.to(device))
        loss = F.cross_entropy(model[3](hidden), y.to(device))
    gradients = mg.grad(loss, [hidden, *model.parameters()], retain_graph=True)
    page = shown(viz.explore(loss, names=model))
    np.testing.assert_allclose(numbers(page["relu"]["outs"][0]), hidden.detach().to("cpu").numpy(), rtol=1e-6)
    names = ["relu", *(name for name, _ in model.named_parameters())]
    for name, gradient in zip(names, gradients, strict=True):
        found = np.ravel(page[name]["grads"][0]["numbers"]).reshape(gradient.shape)
        np.testing.assert_allclose(found, gradient.to("cpu").numpy(), rtol=1e-6, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(np.ravel(page["3.bias"]["outs"][0]["numbers"]), model[3].bias.detach().to("cpu").numpy())
    assert page["relu"]["outs"][0]["device"] == device
    assert page["relu"]["scope"] == ["Sequential", "2: ReLU"]


def test_nobodys_gradient_is_touched_and_backward_may_follow():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    viz.explore(loss)
    assert x.grad is None
    loss.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_recorded_write_is_an_entry():
    x = mg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with viz.record():
        y = x * 1
        y[1:] = mg.tensor([5.0, 6.0])
        loss = (y * y).sum()
    page = shown(viz.explore(loss))
    assert page["setitem"]["outs"][0]["numbers"] == [[1.0, 5.0, 6.0]]
    assert page["leaf"]["grads"][0]["numbers"] == [[2.0, 0.0, 0.0]]


def test_without_a_recording_what_backward_saves_is_known():
    x, w = mg.tensor([[1.0, 2.0]]), mg.tensor([[3.0, 4.0]], requires_grad=True)
    loss = F.linear(x, w).exp().sum()
    page = shown(viz.explore(loss, names={"w": w}, recording=viz.record()))
    assert page["w"]["outs"][0]["numbers"] == [[3.0, 4.0]]
    assert page["linear"]["outs"] is None
    assert page["linear"]["read"][0]["numbers"] == [[1.0, 2.0]]
    assert page["exp"]["saved"][0]["numbers"] == [[pytest.approx(math.exp(11), rel=1e-6)]]
    assert page["linear"]["source"] is None
    assert page["linear"]["forward"] is None
    assert page["linear"]["backward"] > 0


def test_a_pass_that_fails_within_another_takes_no_time_from_it():
    """A backward that catches the error of a nested one, which is entered but never left."""

    def catch(ctx, g):
        with pytest.raises(ZeroDivisionError), mg.enable_grad():
            doubling("Failing", lambda ctx, g: 1 / 0).apply(mg.tensor(1.0, requires_grad=True)).backward()
        time.sleep(0.02)
        return g * 2

    x = mg.tensor(3.0, requires_grad=True)
    page = shown(viz.explore(doubling("Catching", catch).apply(x).exp(), names={"x": x}))
    assert page["Catching"]["backward"] > 0.02
    assert page["x"]["grads"][0]["numbers"] == [[pytest.approx(2 * math.exp(6), rel=1e-5)]]


def test_source_lines_are_shown_with_their_neighbours():
    x = mg.tensor(2.0, requires_grad=True)
    with viz.record():
        y = x.exp()  # this very line
    found = content(viz.explore(y))
    (source,) = found["sources"]
    assert source["lines"][source["line"] - source["first"]].strip() == "y = x.exp()  # this very line"
    assert not Path(source["file"]).is_absolute()


# ── what tapes may hold ───────────────────────────────────────────────────────────────────────────


def test_operations_of_several_outputs():
    x = mg.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    with viz.record():
        parts = mg.split(x, 3)
        loss = (parts[2] * parts[0]).sum()
    page = shown(viz.explore(loss))
    assert [out["numbers"] for out in page["split"]["outs"]] == [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]
    assert [g and g["numbers"] for g in page["split"]["grads"]] == [[[5.0, 6.0]], None, [[1.0, 2.0]]]
    assert page["multiply"]["routes"] == [2, 0]
    assert page["split"]["shape"] == [1, 2]


def test_a_tape_that_was_recorded_while_differentiating():
    model, x, y = normalized_mlp()
    with viz.record():
        loss = F.cross_entropy(model(x), y)
        gradients = mg.grad(loss, list(model.parameters()), create_graph=True)
        penalty = sum((g * g).sum() for g in gradients)
    found = content(viz.explore(penalty, names=model))
    assert len(found["entries"]) > 60
    # the entry that gives a bias its first-order gradient does not depend on the bias: not all have a gradient
    assert all(entry["outs"] for entry in found["entries"])
    wanted = mg.grad(penalty, model[3].weight)
    (entry,) = [entry for entry in found["entries"] if entry["name"] == "3.weight"]
    np.testing.assert_allclose(numbers(found["tensors"][entry["grads"][0]]), wanted.numpy(), rtol=1e-5)


def test_integers_booleans_scalars_and_empty_tensors(device):
    x = mg.asarray(np.arange(6.0).reshape(2, 3), device=device, requires_grad=True)
    with viz.record():
        chosen = mg.where(mg.asarray([True, False, True], device=device), x, 0.0)
        taken = mg.take(chosen, mg.asarray([1, 1], device=device), axis=0)
        nothing = taken[:0].exp()
        loss = taken.sum() + nothing.sum()
    page = shown(viz.explore(loss))
    assert page["where"]["read"][2]["numbers"] == [[1, 0, 1], [1, 0, 1]]
    assert page["exp"]["outs"][0]["shape"] == [0, 3]
    assert page["add"]["outs"][0]["numbers"] == [[16.0]]


def test_numbers_that_json_does_not_know():
    x = mg.tensor([math.nan, math.inf, -math.inf, 0.0], requires_grad=True)
    with viz.record():
        loss = mg.concat([x] * 20).sum()
    page = shown(viz.explore(loss, names={"x": x}))
    assert page["x"]["outs"][0]["numbers"] == [["nan", "inf", "-inf", 0.0]]
    found = page["concat"]["outs"][0]["stats"]
    assert (found["nan"], found["inf"], found["zeros"], found["max"]) == (20, 40, 0.25, 0.0)


def test_an_operation_of_the_users_own():
    x = mg.tensor(2.0, requires_grad=True)
    with viz.record():
        y = Cube.apply(x)
    page = viz.explore(y, names={"x": x})
    assert shown(page)["Cube"]["outs"][0]["numbers"] == [[8.0]]
    assert shown(page)["x"]["grads"][0]["numbers"] == [[12.0]]
    assert content(page)["equations"][1]["backward"] == "Cube.backward, written in Python"


@pytest.mark.parametrize("name", ["softmax", "leaf"])
def test_a_function_with_the_name_of_an_operation_has_its_own_equation(name):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    y = doubling(name).apply(mg.softmax(x, 0)).sum()
    found = content(viz.explore(y, names={"x": x}))
    leaf, ours, own, _ = found["entries"]
    assert [entry["leaf"] for entry in (leaf, ours, own)] == [True, False, False]
    assert [entry["op"] for entry in (leaf, ours, own)] == ["leaf", "softmax", name]
    equations = [found["equations"][entry["equation"]] for entry in (leaf, ours, own)]
    assert equations[1]["backward"] == "dx = y (g − Σ g y)"
    assert equations[2]["backward"] == f"{name}.backward, written in Python"
    assert equations[2]["excerpt"] is None
    assert equations[0] != equations[2]


def test_a_leaf_that_nobody_holds_has_no_gradient():
    y = mg.tensor(2.0, requires_grad=True) + mg.tensor(3.0, requires_grad=True)
    found = content(viz.explore(y))
    assert [entry["grads"] for entry in found["entries"]] == [None, None, None]


# ── large tensors, memory ─────────────────────────────────────────────────────────────────────────


def test_large_tensors_are_shown_by_statistics_and_a_sample(rng):
    values = rng.normal(3, 2, (300, 500)).astype(np.float32)
    values[::2, 0] = 0
    found = describe(mg.tensor(values))
    reference = {
        "min": values.min(), "mean": values.mean(dtype=float), "max": values.max(), "std": values.std(dtype=float),
    }  # fmt: skip
    assert {name: found["stats"][name] for name in reference} == pytest.approx(reference, rel=1e-6)
    assert found["stats"]["zeros"] == pytest.approx(150 / 150000)
    assert found["first"] == pytest.approx(values[0, :8], rel=1e-6)
    assert found["map_shape"] == [16, 32]
    assert len(json.dumps(found)) < 1500


def test_integers_that_javascript_cannot_hold_stay_exact():
    assert describe(mg.tensor([2**53 + 1, -5]))["numbers"] == [["9007199254740993", -5]]


def test_memory_counts_each_piece_once_and_leaves_not():
    """A chain y = tanh(x w): matmul saves x and w, tanh its output, which the next matmul saves again."""
    w = mg.full((8, 8), 0.1, requires_grad=True)
    x = mg.ones((4, 8))
    y = x
    for _ in range(3):
        y = mg.tanh(y @ w)
    found = content(viz.explore(y.sum()))
    piece = 4 * 8 * 4
    ops = [entry["held"] for entry in found["entries"] if not entry["leaf"]]
    assert ops == [piece, piece, 0, piece, 0, piece, 0]  # x; the three outputs of tanh; nothing for the sum
    saved = sum(entry["saved_bytes"] for entry in found["entries"])
    assert saved == 6 * piece + 2 * 8 * 8 * 4  # not the first w: x needs no gradient


def test_an_axis_that_is_repeated_takes_no_memory():
    """The factor (1000, 3) is one row broadcast a thousand times."""
    x = mg.ones((1000, 3), requires_grad=True)
    row = mg.broadcast_to(mg.tensor([[1.0, 2.0, 3.0]]), (1000, 3))
    found = shown(viz.explore((x * row).sum()))["multiply"]
    assert found["held"] == found["saved_bytes"] == 3 * 4


# ── the page ──────────────────────────────────────────────────────────────────────────────────────

HOSTILE = """</script><img src=x onerror="document.title='broken'">'&amp;{{data}}"""


def test_no_name_can_become_markup(tmp_path):
    layer = type(HOSTILE, (nn.Linear,), {})(2, 3)
    x = mg.ones((1, 2))
    namespace = {"layer": layer, "x": x, "viz": viz}
    exec(compile("with viz.record():\n    y = layer(x).sum()", f"/nowhere/{HOSTILE}.py", "exec"), namespace)
    page = viz.explore(namespace["y"], tmp_path / "page.html", names={HOSTILE: layer.weight}, title=HOSTILE)
    assert page.html.count("</script>") == 2
    assert "<img" not in page.html
    found = content(page)
    assert found["entries"][-1]["scope"] == []
    assert found["entries"][2]["scope"] == [HOSTILE]
    assert HOSTILE in [entry["name"] for entry in found["entries"]]
    assert HOSTILE.rpartition("/")[2] in found["sources"][0]["file"]
    assert html.escape(HOSTILE) in page.html


def test_page_is_a_path_and_shows_itself(tmp_path):
    x = mg.tensor(2.0, requires_grad=True)
    page = viz.explore(x * x, tmp_path / "tape.html")
    assert Path(page).read_text(encoding="utf-8") == page.html
    (inside,) = re.findall(r'srcdoc="(.*?)"', page._repr_html_(), re.DOTALL)
    assert html.unescape(inside) == page.html
    assert repr(page).startswith("Page(2 entries, 0.0")
    refuses(TypeError, "Page", "expected a page that was written to a file", os.fspath, viz.explore(x * x))


def test_page_asks_for_nothing_from_elsewhere():
    x = mg.tensor(2.0, requires_grad=True)
    text = viz.explore(x * x).html
    own = "http://www.w3.org/2000/svg"
    assert not re.findall(r"https?://|//[a-z]+\.|@import|url\(|<link|src=", text.replace(own, ""))
    for name in ("explore.html", "explore.js", "explore.css"):
        assert resources.files("minigrad.viz").joinpath(name).is_file()


def test_what_cannot_be_explored_says_why():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    refuses(TypeError, "explore", "expected a tensor, got float", viz.explore, 1.0)
    with pytest.raises(TypeError, match=r"\[explore\] expected a recording, the object of viz.record\(\), got int"):
        viz.explore((x * x).sum(), recording=3)
    refuses(mg.GradientError, "explore", "expected a tensor that depends on something", viz.explore, mg.ones(2))
    refuses(mg.GradientError, "explore", "expected a gradient for a tensor of shape", viz.explore, x * 2)
    with pytest.raises(mg.GradientError, match=r"^\[explore\] expected a gradient of shape \(2,\), .* got \(3,\)"):
        viz.explore(x * 2, grad=mg.ones(3))
    refuses(TypeError, "explore", "expected a tensor as the gradient, got float", viz.explore, x * 2, grad=1.0)
    loss = (x * x).sum()
    loss.backward()
    match = r"\[explore\] expected a tape that is whole, got one .* freed from sum on"
    raises(mg.GradientError, match, viz.explore, loss)
    assert listener.last_listener() is None


def test_a_cotangent_can_be_given():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    page = shown(viz.explore(x * 2, grad=mg.tensor([1.0, 10.0]), names={"x": x}))
    assert page["x"]["grads"][0]["numbers"] == [[2.0, 20.0]]
