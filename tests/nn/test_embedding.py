"""Embedding against PyTorch's, forward and backward."""

import numpy as np
import pytest
from checks import equals, near, raises, refuses, tensor, waited

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (2, 0)])
def test_embedding_is_pytorchs(padding_idx, shape, device):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    ours, theirs = nn.Embedding(7, 3, padding_idx, dtype="float64"), torch.nn.Embedding(7, 3, padding_idx).double()
    if padding_idx is not None:
        assert (ours.weight[padding_idx] == 0).all()
    ours.load_state_dict(theirs.state_dict())
    ours.to(device)
    numbers, g = rng.integers(0, 7, shape), rng.standard_normal((*shape, 3))
    y, expected = ours(tensor(numbers, device)), theirs(torch.tensor(numbers))
    np.testing.assert_array_equal(y.tolist(), expected.tolist())
    y.backward(tensor(g, device))
    expected.backward(torch.from_numpy(g))
    near(ours.weight.grad, theirs.weight.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("times", [1, 700])
def test_rows_that_are_looked_up_often_gather_every_gradient(times, device):
    """They are summed in the order of the lookups, with the same bits on every device."""
    weight = mg.zeros((3, 2), requires_grad=True, device=device)
    numbers = np.tile([1, 1, 0, 1], times)
    g = np.random.default_rng(1).standard_normal((4 * times, 2)).astype("float32")
    F.embedding(tensor(numbers, device), weight).backward(tensor(g, device))
    expected = np.zeros((3, 2), "float32")
    for i, row in zip(numbers, g, strict=True):
        expected[i] += row
    equals(weight.grad, expected)


def test_numbers_out_of_range_wherever_they_are(device):
    weight = mg.zeros((3, 2), device=device)
    for wrong in (3, -1, 2**40):
        for at in {"cpu", device}:
            refuses(IndexError, "embedding", ["0 to 2", str(wrong)], waited(F.embedding), mg.tensor([0, wrong], device=at),
                    weight)  # fmt: skip
    assert F.embedding(mg.tensor([2, 0]), weight).device == device


def test_two_orders(device):
    rng = np.random.default_rng(2)
    numbers = mg.tensor([[0, 3, 3], [2, 0, 1]], device=device)
    weight = tensor(rng.standard_normal((4, 2)), device, True)
    assert mg.gradcheck(lambda w: mg.tanh(F.embedding(numbers, w)), [weight], order=2)


@pytest.mark.parametrize("freeze", [True, False])
def test_from_pretrained(freeze):
    rows = mg.tensor(np.random.default_rng(3).standard_normal((5, 4)))
    table = nn.Embedding.from_pretrained(rows, freeze, padding_idx=-5)
    assert (table.num_embeddings, table.embedding_dim, table.padding_idx) == (5, 4, 0)
    assert repr(table) == "Embedding(5, 4, padding_idx=0)"
    assert table.weight.requires_grad is not freeze
    np.testing.assert_array_equal(table(mg.tensor([4, 0])).detach().numpy(), rows.numpy()[[4, 0]])
    table.weight.data_ptr()
    assert table.weight.data_ptr() == rows.data_ptr()


@pytest.mark.parametrize("call, error, message", [
    (lambda: nn.Embedding(0, 3), ValueError, r"\[Embedding\] expected num_embeddings >= 1, got 0"),
    (lambda: nn.Embedding(5, 3, 5), ValueError, r"\[Embedding\] expected padding_idx from -5 to 4, got 5"),
    (lambda: nn.Embedding.from_pretrained(mg.ones(3)), ValueError, r"\[Embedding\] expected rows .* got \(3,\)"),
    (lambda: nn.Embedding.from_pretrained(mg.ones((5, 3)), padding_idx=5), ValueError, r"\[Embedding\] expected padding_idx from -5 to 4"),
    (lambda: nn.Embedding.from_pretrained(mg.ones((0, 3)), padding_idx=0), ValueError, r"\[Embedding\] expected rows"),
    (lambda: nn.Embedding.from_pretrained(mg.ones((5, 3), dtype="int64")), TypeError, r"\[Embedding\] expected rows of floats"),
    (lambda: F.embedding(mg.tensor([0]), mg.ones((4, 2)), 6), ValueError, r"\[embedding\] expected padding_idx from -4 to 3, got 6"),
    (lambda: nn.Embedding(5, 3)(mg.tensor([5])), IndexError, r"\[embedding\] expected indices from 0 to 4, got 5"),
    (lambda: nn.Embedding(5, 3)(mg.tensor([-1])), IndexError, r"\[embedding\] expected indices from 0 to 4, got -1"),
    (lambda: nn.Embedding(5, 3)(mg.tensor([1.0])), TypeError, r"\[embedding\] expected integer indices, got float32"),
    (lambda: nn.Embedding.from_pretrained(np.ones((5, 3))), TypeError, r"\[Embedding\] expected a tensor of rows, got ndarray"),
    (lambda: nn.Embedding(5, 3)([1, 2]), TypeError, r"\[embedding\] expected a tensor, got list"),
    (lambda: nn.Embedding(5, 3)(np.array([1, 2])), TypeError, r"\[embedding\] expected a tensor, got ndarray"),
    (lambda: F.embedding(mg.tensor([0]), [[1.0]]), TypeError, r"\[embedding\] expected a tensor, got list"),
    (lambda: F.embedding(mg.tensor([0]), mg.ones(3)), ValueError, r"\[embedding\] expected a table .* got \(3,\)"),
])  # fmt: skip
def test_bad_input(call, error, message):
    raises(error, message, call)


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_table_without_rows(index, device):
    table = mg.zeros((0, 3), device=device)
    indices = mg.full(2, index, dtype="int64", device=device)
    refuses(IndexError, "embedding", "from 0 to -1, that is, none, got 2", F.embedding, indices, table)
    assert F.embedding(indices[:0], table).shape == (0, 3)
