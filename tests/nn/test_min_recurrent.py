"""MinGRU and MinLSTM against their equations, step by step in NumPy; padding; derivatives."""

import numpy as np
import pytest
from checks import array, near, raises, tensor
from sequences import D, H, N, T, called_with, grown, normals

import minigrad as mg
from minigrad import nn

KINDS = "MinGRU", "MinLSTM"


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(layer, x, starts, lengths):
    """Return what the layer returns for x (T, N, D), from its parameters by the paper's equations."""
    value, ends = {name: array(p) for name, p in layer.named_parameters()}, []
    for number in range(layer.num_layers):
        outputs = []
        for way in ("", "_reverse") if layer.bidirectional else ("",):
            suffix, y = f"_l{number}{way}", np.zeros((*x.shape[:2], layer.hidden_size))
            last = starts[len(ends)].copy()
            for n, length in enumerate(lengths):
                for t in reversed(range(length)) if way else range(length):
                    parts = np.split(value["weight_ih" + suffix] @ x[t, n], layer.gates)
                    if layer.norm:
                        name = {"layer": "ln", "rms": "rms"}[layer.norm] + suffix
                        affine = (np.split(value[f"{name}.{part}"], layer.gates) for part in ("weight", "bias"))
                        parts = [p - p.mean() * (layer.norm == "layer") for p in parts]
                        parts = [
                            p / np.sqrt((p**2).mean() + layer.eps) * w + b
                            for p, w, b in zip(parts, *affine, strict=True)
                        ]
                    elif layer.bias:
                        parts = [
                            p + b for p, b in zip(parts, np.split(value["bias_ih" + suffix], layer.gates), strict=True)
                        ]
                    if layer.gates == 2:
                        z, c = parts
                        last[n] = (1 - sigmoid(z)) * last[n] + sigmoid(z) * c
                    else:
                        f, i, c = parts
                        last[n] = (sigmoid(f) * last[n] + sigmoid(i) * c) / (sigmoid(f) + sigmoid(i))
                    y[t, n] = last[n]
            outputs.append(y)
            ends.append(last)
        x = np.concatenate(outputs, axis=-1)
    return x, np.stack(ends)


@pytest.mark.parametrize("norm", [None, "layer", "rms"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [
    {}, {"bias": False}, {"num_layers": 2, "bidirectional": True}, {"num_layers": 3, "batch_first": True},
], ids=str)  # fmt: skip
def test_the_papers_equations(kind, norm, options, device):
    layer = grown(getattr(nn, kind)(D, H, norm=norm, **options)).to(device)
    first = options.get("batch_first", False)
    for seed, lengths in enumerate([None, (2, T, 4), (0, T, 1)]):
        x, starts = normals(seed, (T, N, D), (layer.num_layers * (1 + layer.bidirectional), N, H))
        for start in (None, starts):
            y, ends = layer(
                tensor(x.swapaxes(0, 1) if first else x, device),
                None if start is None else tensor(start, device), lengths,
            )  # fmt: skip
            expected = reference(layer, x, 0 * starts if start is None else start, lengths or (T,) * N)
            np.testing.assert_allclose(array(y).swapaxes(0, 1) if first else array(y), expected[0], atol=1e-12)
            near(ends, expected[1], atol=1e-12)
    alone, end = layer(tensor(x[:, 0], device))
    assert (alone.shape, end.shape) == ((T, y.shape[2]), ends.shape[::2])


@pytest.mark.parametrize("norm", [None, "layer", "rms"])
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_two_orders(kind, norm):
    layer = grown(getattr(nn, kind)(3, 2, num_layers=2, bidirectional=True, norm=norm))
    x, h = (tensor(v, "cpu", True) for v in normals(3, (4, 2, 3), (4, 2, 2)))
    parameters = list(layer.parameters())
    mg.gradcheck(lambda x, h, *given: called_with(layer, given, x, h, (4, 2)), [x, h, *parameters], order=2)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_influence(kind, device):
    layer = getattr(nn, kind)(D, H, num_layers=2, bidirectional=True).to(device)
    x, lengths, found = normals(4, (T, N, D))[0].astype("float32"), (2, 0, 4), []
    for value in (0.0, np.nan, np.inf, -1e30):
        for n, end in enumerate(lengths):
            x[end:, n] = value
        inputs = tensor(x, device, True)
        y, ends = layer(inputs, lengths=lengths)
        grads = mg.grad((y.square().sum() + ends.sin().sum()), [inputs, *layer.parameters()])
        found.append(b"".join(array(v).tobytes() for v in (y, ends, *grads)))
    assert len(set(found)) == 1
    assert np.isfinite(np.frombuffer(found[0], "float32")).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_does_not_depend_on_the_others(kind, device):
    layer = getattr(nn, kind)(D, H, norm="layer").to(device)
    x = tensor(normals(6, (T, 8, D))[0].astype("float32"), device)
    others = x.copy()
    others[:, :5] = 3.0
    assert array(layer(x)[0])[:, 5:].tobytes() == array(layer(others)[0])[:, 5:].tobytes()


def test_closed_gates_of_minlstm():
    """Both gates underflow; their ratio does not."""
    layer = nn.MinLSTM(1, 1, dtype="float64")
    layer.load_state_dict({"weight_ih_l0": [[0.0], [0.0], [0.0]], "bias_ih_l0": [-900.0, -901.0, 2.0]})
    y, _ = layer(mg.zeros((1, 1, 1), dtype="float64"), mg.ones((1, 1, 1), dtype="float64"))
    np.testing.assert_allclose(y.item(), (np.e + 2) / (np.e + 1), rtol=1e-14)


def test_parameters_and_errors():
    assert {n: p.shape for n, p in nn.MinGRU(4, 5, num_layers=2).named_parameters()} == {
        "weight_ih_l0": (10, 4), "bias_ih_l0": (10,), "weight_ih_l1": (10, 5), "bias_ih_l1": (10,)}  # fmt: skip
    assert list(dict(nn.MinLSTM(4, 5, norm="layer").named_parameters())) == [
        "weight_ih_l0", "ln_l0.weight", "ln_l0.bias",
    ]  # fmt: skip
    assert repr(nn.MinGRU(4, 5, bias=False, num_layers=2)) == "MinGRU(4, 5, bias=False, num_layers=2)"
    for make, error in (
        (lambda: nn.MinGRU(4, 5, bias="input"), "expected bias True or False, got 'input'"),
        (lambda: nn.MinGRU(4, 5, norm="batch"), "expected norm None or 'layer' or 'rms', got 'batch'"),
        (lambda: nn.MinLSTM(4, 5)(mg.zeros((3, 2, 5))), r"expected an input of shape \(T, N, 4\)"),
        (lambda: nn.MinLSTM(4, 5)(mg.zeros((3, 2, 4)), lengths=(1, 4)), "expected lengths from 0 to 3, got 4"),
        (lambda: nn.MinGRU(4, 5)(mg.zeros((3, 2, 4)), mg.zeros((2, 5))), r"expected a state of shape \(1, 2, 5\)"),
        (lambda: nn.MinGRU(4, 5)(mg.zeros((0, 2, 4))), "expected at least one step"),
    ):
        raises((ValueError, TypeError), rf"^\[Min(GRU|LSTM)\] {error}", make)
