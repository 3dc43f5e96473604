"""Fixtures of the optimizers' tests."""

import pytest


@pytest.fixture
def torch(monkeypatch):
    """PyTorch without its two roundings of float64: of NAdam's product, and of the matrices of Muon to bfloat16."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda matrix: matrix.clone())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield torch
    torch.set_default_dtype(before)
