"""Operations with a backward of our own: a Legendre polynomial, and a rounding that lets the gradient through."""

import numpy as np
import torch
import torch.nn as nn


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, levels):
        level = torch.round(input * levels)
        ctx.mark_non_differentiable(level)
        return level / levels, level

    @staticmethod
    def backward(ctx, grad_output, grad_level):
        return grad_output.clone(), None


class LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


rng = np.random.default_rng(9)
x = torch.from_numpy(rng.uniform(-1, 1, (20, 3)))
y = torch.sin(x.sum(dim=1, keepdim=True))
weight = nn.Parameter(torch.from_numpy(rng.normal(0, 0.5, (1, 3))))
bias = nn.Parameter(torch.zeros(1, dtype=torch.float64))
scale = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
losses = []
assert torch.autograd.gradcheck(LinearFunction.apply, (x, weight, bias))
assert torch.autograd.gradcheck(LegendrePolynomial3.apply, (x.clone().requires_grad_(),))

P3 = LegendrePolynomial3.apply
optimizer = torch.optim.SGD([weight, bias, scale], lr=0.05)
for t in range(15):
    hidden = LinearFunction.apply(x, weight, bias)
    quantized, level = Quantize.apply(hidden, 64)
    assert not level.requires_grad
    y_pred = scale * P3(quantized)
    loss = (y_pred - y).pow(2).mean()
    losses.append(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(losses[-1])
