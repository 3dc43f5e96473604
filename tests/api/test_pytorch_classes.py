"""Every public class of torch.nn, torch.optim and its schedulers works here, or its error says what to write; the code
of such an error computes what PyTorch's class does."""

import inspect
import re

import numpy as np
import pytest
from checks import array, near

import minigrad as mg
from minigrad import nn, optim, pytorch

torch = pytest.importorskip("torch")

PLACES = {
    "nn": (torch.nn, nn, "torch.nn."),
    "optim": (torch.optim, optim, "torch.optim."),
    "lr_scheduler": (torch.optim.lr_scheduler, optim.lr_scheduler, "torch.optim.lr_scheduler"),
}


def classes(module, owner):
    """Return the public classes of a module of PyTorch, without those that it imports for its own use."""
    return [
        name for name, value in vars(module).items()
        if inspect.isclass(value) and name[0] != "_" and value.__module__.startswith(owner)
    ]  # fmt: skip


def is_silent(module, name):
    try:
        return not inspect.isclass(getattr(module, name))
    except AttributeError as error:
        return not str(error).startswith(f"[{name}] ")


@pytest.mark.parametrize("place", PLACES)
def test_every_class_works_or_points(place):
    theirs, ours, owner = PLACES[place]
    names = classes(theirs, owner)
    assert len(names) >= {"nn": 165, "optim": 14, "lr_scheduler": 15}[place]
    silent = [name for name in names if is_silent(ours, name)]
    assert silent == []


# ── the code of the errors ────────────────────────────────────────────────────────────────────────

RNG = np.random.default_rng(0)
FLAT, STEPS, IMAGES, CUBES = (
    RNG.standard_normal(shape) for shape in [(4, 5), (2, 3, 8), (2, 6, 4, 8), (2, 3, 4, 4, 8)]
)
SIGNS, LABELS = np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 4, 2, 2])
N = {"n": 2, "c": 3}
# The class: its arguments, its inputs by the names in the code, and the numbers that the code names.
ADVICE = {
    "CELU": ({"alpha": 0.7}, {"x": FLAT}, {"alpha": 0.7}),
    "Softmin": ({"dim": 1}, {"x": FLAT}, {"axis": 1}),
    "Tanhshrink": ({}, {"x": FLAT}, {}),
    "Softshrink": ({"lambd": 0.4}, {"x": FLAT}, {"lambd": 0.4}),
    "Hardshrink": ({"lambd": 0.4}, {"x": FLAT}, {"lambd": 0.4}),
    "Threshold": ({"threshold": 0.1, "value": 9.0}, {"x": FLAT}, {"threshold": 0.1, "value": 9.0}),
    "Softmax2d": ({}, {"x": IMAGES}, {}),
    "ChannelShuffle": ({"groups": 2}, {"x": IMAGES}, {"n": 2, "g": 2, "c": 6, "h": 4, "w": 8}),
    "PixelUnshuffle": ({"downscale_factor": 2}, {"x": IMAGES}, {"n": 2, "r": 2, "c": 6, "h": 2, "w": 4}),
    "LocalResponseNorm": (
        {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 2.0}, {"x": IMAGES}, {"size": 3, "alpha": 0.3, "beta": 0.6, "k": 2.0, "n": 2, "c": 6},
    ),
    "LPPool1d": ({"norm_type": 2, "kernel_size": 2}, {"x": STEPS}, {"p": 2, "k": 2}),
    "LPPool2d": ({"norm_type": 2, "kernel_size": 2}, {"x": IMAGES}, {"p": 2, "k": 2}),
    "LPPool3d": ({"norm_type": 2, "kernel_size": 2}, {"x": CUBES}, {"p": 2, "k": 2, "d": 4, "h": 4, "w": 8} | N),
    "AvgPool3d": ({"kernel_size": 2}, {"x": CUBES}, {"k": 2, "d": 4, "h": 4, "w": 8} | N),
    "MaxPool3d": ({"kernel_size": 2}, {"x": CUBES}, {"k": 2, "d": 4, "h": 4, "w": 8} | N),
    "AdaptiveAvgPool3d": ({"output_size": 1}, {"x": CUBES}, {}),
    "AdaptiveMaxPool3d": ({"output_size": 1}, {"x": CUBES}, {}),
    "AdaptiveMaxPool1d": ({"output_size": 1}, {"x": STEPS}, {}),
    "PairwiseDistance": ({}, {"a": FLAT, "b": FLAT[::-1].copy()}, {}),
    "CosineEmbeddingLoss": ({"margin": 0.2}, {"a": FLAT, "b": FLAT[::-1].copy(), "y": SIGNS}, {"margin": 0.2}),
    "MarginRankingLoss": ({"margin": 0.2}, {"a": FLAT[:, 0], "b": FLAT[:, 1], "y": SIGNS}, {"margin": 0.2}),
    "HingeEmbeddingLoss": ({"margin": 0.2}, {"x": FLAT[:, 0], "y": SIGNS}, {"margin": 0.2}),
    "SoftMarginLoss": ({}, {"x": FLAT[:, 0], "y": SIGNS}, {}),
    "MultiMarginLoss": ({"margin": 0.8}, {"x": FLAT, "y": LABELS}, {"margin": 0.8}),
    "PoissonNLLLoss": ({}, {"x": FLAT, "y": np.arange(20.0).reshape(4, 5)}, {}),
    "MultiLabelSoftMarginLoss": ({}, {"x": FLAT, "y": (FLAT > 0) * 1.0}, {}),
    "TripletMarginWithDistanceLoss": (
        {"distance_function": lambda a, b: abs(a - b).sum(1)}, {"a": FLAT, "b": FLAT[::-1].copy(), "c": FLAT + 1},
        {"f": lambda a, b: abs(a - b).sum(1), "margin": 1.0},
    ),
    "UpsamplingNearest2d": ({"scale_factor": 2}, {"x": IMAGES}, {}),
    "UpsamplingBilinear2d": ({"scale_factor": 2}, {"x": IMAGES}, {}),
    "ZeroPad3d": ({"padding": 1}, {"x": CUBES}, {"widths": [1] * 6}),
    "ConstantPad3d": ({"padding": 1, "value": 2.0}, {"x": CUBES}, {"widths": [1] * 6, "value": 2.0}),
    "ReflectionPad3d": ({"padding": 1}, {"x": CUBES}, {"widths": [1] * 6}),
    "ReplicationPad3d": ({"padding": 1}, {"x": CUBES}, {"widths": [1] * 6}),
    "CircularPad1d": ({"padding": (1, 2)}, {"x": STEPS}, {"widths": (1, 2)}),
    "CircularPad2d": ({"padding": 1}, {"x": IMAGES}, {"widths": [1] * 4}),
    "CircularPad3d": ({"padding": 1}, {"x": CUBES}, {"widths": [1] * 6}),
    "InstanceNorm3d": ({"num_features": 3}, {"x": CUBES}, {}),
    "RReLU": ({}, {"x": FLAT}, {}),
}  # fmt: skip


def written(code, tensors, numbers):
    """Evaluate the code of an error, of which a second part may define `s`, or call the module that it names."""
    space = {"mg": mg, "nn": nn, **tensors, **numbers}
    for definition in code[1:]:
        if definition.startswith("s = "):
            space["s"] = eval(definition[4:], space)
    found = eval(code[0], space)
    return found(*tensors.values()) if isinstance(found, nn.Module) else found


@pytest.mark.parametrize("name", ADVICE)
def test_code_of_errors_computes_what_pytorch_does(name):
    options, inputs, numbers = ADVICE[name]
    code = re.findall("`([^`]+)`", pytorch.POINTERS["minigrad.nn"][name])
    ours = {k: mg.tensor(v, requires_grad=v.dtype.kind == "f" and k != "y") for k, v in inputs.items()}
    theirs = {k: torch.tensor(v, requires_grad=ours[k].requires_grad) for k, v in inputs.items()}
    y, expected = written(code, ours, numbers), getattr(torch.nn, name)(**options).eval()(*theirs.values())
    near(y, expected.detach().numpy(), rtol=1e-7, atol=1e-12)
    g = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(mg.tensor(g))
    expected.backward(torch.tensor(g))
    for k, x in ours.items():
        if x.requires_grad:
            near(x.grad, theirs[k].grad.numpy(), rtol=1e-6, atol=1e-12)


SQUARE = FLAT @ FLAT.T + np.eye(4)
GAPS = np.where(FLAT > 1, np.nan, FLAT)
FUNCTIONS = {  # their inputs by the names in the code, in PyTorch's order, and the numbers that the code names
    "inner": ({"x": FLAT, "y": FLAT[::-1].copy()}, {}),
    "diag_embed": ({"x": FLAT}, {"n": 5}),
    "dist": ({"x": FLAT, "y": FLAT[::-1].copy()}, {}),
    "logdet": ({"x": SQUARE}, {}),
    "nansum": ({"x": GAPS}, {"axis": None}),
    "nanmean": ({"x": GAPS}, {}),
    "unique_consecutive": ({"x": np.array([1.0, 1.0, 2.0, 1.0, 1.0])}, {}),
    "bucketize": ({"x": FLAT[0], "boundaries": np.sort(FLAT[1])}, {}),
    "isin": ({"x": FLAT, "values": FLAT[1, :2]}, {}),
    "trapezoid": ({"y": FLAT[0], "x": np.sort(FLAT[1])}, {}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_code_for_functions_computes_what_pytorch_does(name):
    inputs, numbers = FUNCTIONS[name]
    code = re.findall("`([^`]+)`", pytorch.POINTERS["minigrad"][name])
    y = written(code, {k: mg.tensor(v) for k, v in inputs.items()}, numbers)
    near(y, getattr(torch, name)(*map(torch.tensor, inputs.values())).numpy(), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("axes", [1, 2])
def test_code_of_unpooling_puts_the_largest_back(axes):
    x = (STEPS, IMAGES)[axes - 1]
    y, index = getattr(nn, f"MaxPool{axes}d")(2, return_indices=True)(mg.tensor(x))
    theirs = torch.nn.functional.max_unpool1d if axes == 1 else torch.nn.functional.max_unpool2d
    expected = theirs(torch.tensor(array(y)), torch.tensor(array(index)), 2)
    numbers = {"index": index, "n": 2, "c": x.shape[1], "steps": 8, "h": 4, "w": 8}
    code = re.findall("`([^`]+)`", pytorch.POINTERS["minigrad.nn"][f"MaxUnpool{axes}d"])
    near(written(code, {"x": y.astype("float32")}, numbers), expected, rtol=1e-6)


def test_every_module_with_the_advice_of_a_function_is_checked():
    assert pytorch.layer_hints.LIKE_FUNCTIONS.keys() - ADVICE.keys() == {"MaxUnpool1d", "MaxUnpool2d"}
