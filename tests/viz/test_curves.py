"""Curves show the numbers they are given: medians, bands, and pairs of training and validation in one color."""

import builtins
import sys

import numpy as np
import pytest
from checks import raises, refuses

from minigrad import viz


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_one_run():
    figure = viz.curves({"LN": [3.0, 2.0, 1.5], "BN": [3.0, 2.5, 2.0]}, title="Digits", ylabel="loss", log=True)
    found = lines(figure)
    assert list(found) == ["LN", "BN"]
    np.testing.assert_array_equal(found["LN"].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(found["BN"].get_ydata(), [3.0, 2.5, 2.0])
    assert found["LN"].get_color() != found["BN"].get_color()
    assert {line.get_linestyle() for line in found.values()} == {"-"}
    (axes,) = figure.axes
    assert (axes.get_title("left") or axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == (
        "Digits", "epoch", "loss",
    )  # fmt: skip
    assert axes.get_yscale() == "log"
    assert len(axes.collections) == 0  # no band around one run


@pytest.mark.parametrize("last", [0.9, 0.5, 0.1, 0.001])
def test_a_logarithmic_axis_has_numbers_to_read_values_by(last):
    axes = viz.curves({"loss": [1.2, last]}, log=True).axes[0]
    low, high = axes.get_ylim()
    ticks = [
        pair
        for minor in (False, True)
        for pair in zip(axes.get_yticks(minor=minor), axes.get_yticklabels(minor=minor), strict=True)
    ]
    shown = [(place, label.get_text()) for place, label in ticks if low <= place <= high and label.get_text()]
    assert len(shown) >= 2
    assert [float(text) for _, text in shown] == pytest.approx([place for place, _ in shown])


def test_several_seeds_are_a_median_and_a_band(rng):
    runs = rng.normal(size=(5, 7))
    figure = viz.curves({"loss": runs})
    np.testing.assert_array_equal(lines(figure)["loss"].get_ydata(), np.median(runs, axis=0))
    (band,) = figure.axes[0].collections
    vertices = band.get_paths()[0].vertices
    for step in range(7):
        at = vertices[vertices[:, 0] == step + 1][:, 1]
        assert (at.min(), at.max()) == (runs[:, step].min(), runs[:, step].max())


@pytest.mark.parametrize("training, held_out", [
    ("train loss", "validation loss"), ("loss", "val_loss"), ("training_loss", "test_loss"), ("LN train", "LN validation"),
    ("Train/Accuracy", "Test/Accuracy"), ("error", "held-out error"), ("train", "valid"),
])  # fmt: skip
def test_pairs_share_a_color(training, held_out):
    found = lines(viz.curves({training: [1, 2], "something else": [0, 0], held_out: [2, 3]}))
    assert found[training].get_color() == found[held_out].get_color() != found["something else"].get_color()
    assert (found[training].get_linestyle(), found[held_out].get_linestyle()) == ("--", "-")
    assert found["something else"].get_linestyle() == "-"


@pytest.mark.parametrize("name", ["value", "constraint", "latest", "invalid share", "retrained"])
def test_words_that_only_look_alike(name):
    found = lines(viz.curves({name: [1, 2], "other": [1, 2]}))
    assert found[name].get_linestyle() == "-"
    assert found[name].get_color() != found["other"].get_color()


def test_a_dict_for_each_epoch_and_a_list_of_them_for_each_seed():
    run = [{"loss": 2.0, "accuracy": 0.1}, {"loss": 1.0, "accuracy": 0.5}]
    other = [{"loss": 4.0, "accuracy": 0.3}, {"loss": 1.0, "accuracy": 0.9}]
    np.testing.assert_array_equal(lines(viz.curves(run))["accuracy"].get_ydata(), [0.1, 0.5])
    figure = viz.curves([run, other])
    np.testing.assert_array_equal(lines(figure)["loss"].get_ydata(), [3.0, 1.0])
    assert len(figure.axes[0].collections) == 2


def test_other_axes_and_places():
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2)
    try:
        assert viz.curves({"a": [1, 2]}, axes=right, x=[10, 20], xlabel="step") is figure
        assert len(left.lines) == 0
        np.testing.assert_array_equal(right.lines[0].get_xdata(), [10, 20])
        assert right.get_xlabel() == "step"
    finally:
        plt.close(figure)


def test_pyplot_keeps_nothing():
    import matplotlib.pyplot as plt

    before, settings = plt.get_fignums(), dict(plt.rcParams)
    viz.curves({"a": [1, 2]})
    assert plt.get_fignums() == before
    assert dict(plt.rcParams) == settings


def test_saves(tmp_path):
    viz.curves({"a": [1, 2]}).savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_without_matplotlib(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    refuses(ImportError, "curves", ": pip install matplotlib", viz.curves, {"a": [1, 2]})


def test_errors():
    for history, message in [
        ({}, "expected something to draw"),
        ([], "expected a dict, or a dict for each epoch, got list"),
        ([1.0, 2.0], "expected a dict, or a dict for each epoch, got list"),
        ({"a": []}, r"expected values \(epochs,\) or \(seeds, epochs\) for 'a', got \(0,\)"),
        ({"a": [[1, 2], [3]]}, "expected as many numbers from each seed, got others for 'a'"),
        ({"a": ["low", "high"]}, "expected as many numbers from each seed, got others for 'a'"),
        ({"a": [{}]}, "expected as many numbers from each seed, got others for 'a'"),
        ([{"a": 1, "b": 2}, {"a": 1}], "expected 'b' in every epoch"),
    ]:
        raises(ValueError, rf"^\[curves\] {message}", viz.curves, history)
    for history, message in [
        (5, "expected a dict, or a dict for each epoch, got int"),
        ({1: [1, 2]}, "expected names that are strings, got 1 of type int"),
        ([{None: 1.0}], "expected names that are strings, got None of type NoneType"),
    ]:
        raises(TypeError, rf"^\[curves\] {message}$", viz.curves, history)
    with pytest.raises(ValueError, match=r"\[curves\] expected x of length 2 for 'a', got shape \(3,\)"):
        viz.curves({"a": [1, 2]}, x=[1, 2, 3])


def test_the_legend_covers_no_curve(rng):
    """Curves that leave a corner free have the legend there, and those that fill the axes have it below them."""
    free = viz.curves({"a": [4.0, 2.0, 1.0, 0.5], "b": [3.0, 1.0, 0.4, 0.2]})
    assert free.axes[0].get_legend() is not None
    assert free.legends == []
    for full in ({"a": [1.0, 0.0] * 20, "b": [0.0, 1.0] * 20}, {"a band": rng.uniform(size=(50, 40))}):
        figure = viz.curves(full)
        (legend,) = figure.legends
        assert figure.axes[0].get_legend() is None
        assert [text.get_text() for text in legend.get_texts()] == list(full)
        figure.draw_without_rendering()
        box, (axes,) = legend.get_window_extent(), figure.axes
        assert not box.overlaps(axes.get_tightbbox())
        assert box.y0 >= 0
