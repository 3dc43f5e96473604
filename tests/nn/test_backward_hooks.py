"""Full backward hooks of modules: PyTorch's calls and gradients."""

import numpy as np
import pytest
from checks import raises, refuses, tensor
from peers import torch

import minigrad as mg

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
LIBRARIES = pytest.mark.parametrize("library", [mg, torch], ids=["minigrad", "torch"])


def build(library):
    """A module of two tensors and a number, with three results of which one is a number."""

    class Mixed(library.nn.Module):
        def forward(self, x, factor, y):
            return x * y * factor, factor, (x - y).sum()

    return Mixed()


def seen(library, device="cpu"):
    """Return what hooks saw, and the gradients, of several calls."""
    rng, found = np.random.default_rng(0), []
    values = [rng.standard_normal((2, 3)).astype("float32") for _ in range(2)]

    def leaves(*needed):
        if library is mg:
            return [tensor(v, device, n) for v, n in zip(values, needed, strict=True)]
        return [torch.tensor(v, requires_grad=n) for v, n in zip(values, needed, strict=True)]

    def hook(module, grad_input, grad_output):
        found.append([None if g is None else g.tolist() for g in (*grad_input, *grad_output)])

    module = build(library)
    for change in (None, lambda module, grad_input, grad_output: (grad_input[0] * 2, None, grad_input[2] - 1)):
        handles = [module.register_full_backward_hook(hook)]
        if change is not None:
            handles.append(module.register_full_backward_hook(change))
        x, y = leaves(True, True)
        product, _, difference = module(x * 1, 3.0, y)
        (product.sum() + difference * x.sum()).backward()
        found += [x.grad.tolist(), y.grad.tolist()]
        for handle in handles:
            handle.remove()
    handle = module.register_full_backward_hook(hook)
    x, y = leaves(True, True)
    module(x, 2.0, y)[0].sum().backward()  # one result is not used
    for needed in ((True, False), (False, True)):
        x, y = leaves(*needed)
        product, _, difference = module(x, 2.0, y)
        for _ in range(2):
            (product.sum() * difference).backward(retain_graph=True)
        found.append([None if leaf.grad is None else leaf.grad.tolist() for leaf in (x, y)])
    with library.no_grad():
        assert not module(*leaves(True, True)[:1], 1.0, y)[0].requires_grad
    assert not module(*leaves(False, False)[:1], 1.0, leaves(False, False)[1])[0].requires_grad
    product = module(leaves(True, True)[0], 1.0, y)[0]
    handle.remove()
    handle.remove()
    product.sum().backward()  # the call was recorded with its hook
    return found


def same(ours, theirs):
    """Assert that two results are equal; PyTorch has zeros for a tensor that needs no gradient beside one that does."""
    if ours is None:
        assert theirs is None or not np.any(theirs)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            same(*pair)
    else:
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_hooks_see_what_those_of_pytorch_see(device):
    same(seen(mg, device), seen(torch))


@LIBRARIES
def test_a_module_whose_arguments_need_no_gradient(library):
    layer, calls = library.nn.Linear(2, 1), []
    layer.register_full_backward_hook(
        lambda module, given, out: calls.append((module is layer, given, out[0].tolist()))
    )
    layer(library.ones(3, 2)).sum().backward()
    assert calls == [(True, (None,), [[1.0]] * 3)]
    assert layer.weight.grad.tolist() == [[3.0, 3.0]]


@LIBRARIES
def test_second_derivatives_pass_through_hooks(library):
    module = library.nn.Softplus()
    module.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] ** 2,))
    x = library.tensor([0.5, -1.0], requires_grad=True)
    (g,) = library.autograd.grad(module(x).sum(), x, create_graph=True)
    (second,) = library.autograd.grad(g.sum(), x)
    s = 1 / (1 + np.exp(-np.array([0.5, -1.0])))
    np.testing.assert_allclose(g.detach().numpy(), s**2, rtol=1e-6)
    np.testing.assert_allclose(second.numpy(), 2 * s * s * (1 - s), rtol=1e-5)


@LIBRARIES
def test_hooks_of_nested_modules_are_called_from_the_output_back(library):
    model, calls = library.nn.Sequential(library.nn.Linear(2, 2), library.nn.Tanh()), []
    for name, module in model.named_modules():
        module.register_full_backward_hook(lambda module, grad_input, grad_output, name=name: calls.append(name))
    model(library.ones(1, 2, requires_grad=True)).sum().backward()
    assert calls == ["1", "0", ""]


@LIBRARIES
def test_a_hook_must_return_a_gradient_for_each_argument(library):
    module = library.nn.Tanh()
    module.register_full_backward_hook(lambda module, grad_input, grad_output: (*grad_input, None))
    y = module(library.ones(2, requires_grad=True))
    raises((ValueError, RuntimeError), "hook", y.sum().backward)


def test_a_hook_is_a_function():
    refuses(TypeError, "Tanh", "expected a function as a hook", mg.nn.Tanh().register_full_backward_hook, 3)
