"""PyTorch and steps beside it, for tests that compare with it; where it is missing, a test that uses it is skipped."""

import importlib

import numpy as np
import pytest
from checks import array, tensor


class Missing:
    def __getattr__(self, name):
        if name.startswith("_"):  # asked by pytest, of everything in a module
            raise AttributeError(name)
        pytest.skip("could not import 'torch'")


try:
    torch = importlib.import_module("torch")
except ImportError:
    torch = Missing()


def exchange_state(ours, theirs, rng):
    """Give PyTorch's module random parameters and running statistics, load them into ours and compare them back."""
    with torch.no_grad():
        for name, tensor in theirs.state_dict().items():
            if tensor.dtype.is_floating_point:
                values = rng.uniform(0.5, 2, tensor.shape) if "var" in name else rng.standard_normal(tensor.shape)
                tensor.copy_(torch.from_numpy(np.asarray(values)))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        sent = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
        for tensor in theirs.state_dict().values():
            tensor.zero_()
    theirs.load_state_dict({name: torch.from_numpy(array(value)) for name, value in ours.state_dict().items()})
    assert all(torch.equal(tensor, sent[name]) for name, tensor in theirs.state_dict().items())


def step_beside_torch(ours, theirs, x, rng, rtol, atol, device="cpu"):
    """Return outputs, the gradients of input and parameters for a random cotangent, and the state afterwards."""
    x_ours, x_theirs = tensor(x, device, True), torch.tensor(x, requires_grad=True)
    y_ours, y_theirs = ours(x_ours), theirs(x_theirs)
    g = rng.standard_normal(y_ours.shape).astype(x.dtype)
    ours.zero_grad()
    theirs.zero_grad()
    y_ours.backward(tensor(g, device))
    y_theirs.backward(torch.from_numpy(g))
    assert y_ours.dtype == str(x.dtype)
    pairs = {"y": (y_ours, y_theirs), "x.grad": (x_ours.grad, x_theirs.grad)}
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        pairs[name + ".grad"] = a.grad, b.grad
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        pairs[name] = a, b
    for name, (a, b) in pairs.items():
        np.testing.assert_allclose(array(a), b.detach().numpy(), rtol=rtol, atol=atol, err_msg=name)
