"""Fit y = sin(x) with a polynomial of degree three: first with autograd alone, then with nn and optim."""

import math

import torch
import torch.nn as nn

x = torch.linspace(-math.pi, math.pi, 200, dtype=torch.float64)
y = torch.sin(x)
losses = []

# autograd alone
a = torch.zeros((), dtype=torch.float64, requires_grad=True)
b = torch.full((), 0.5, dtype=torch.float64, requires_grad=True)
c = torch.tensor(-0.2, dtype=torch.float64, requires_grad=True)
d = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
learning_rate = 1e-6
for t in range(10):
    y_pred = a + b * x + c * x**2 + d * x**3
    loss = (y_pred - y).pow(2).sum()
    losses.append(loss.item())
    loss.backward()
    with torch.no_grad():
        a -= learning_rate * a.grad
        b -= learning_rate * b.grad
        c -= learning_rate * c.grad
        d -= learning_rate * d.grad
        a.grad = None
        b.grad = None
        c.grad = None
        d.grad = None
print(f"Result: y = {a.item()} + {b.item()} x + {c.item()} x^2 + {d.item()} x^3")

# nn and optim
p = torch.tensor([1, 2, 3])
xx = x.unsqueeze(-1).pow(p)
assert xx.shape == (200, 3)

model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1)).double()
linear_layer = model[0]
with torch.no_grad():
    linear_layer.weight.copy_(torch.tensor([[0.3, -0.1, 0.05]]))
    linear_layer.bias.fill_(0.1)
loss_fn = nn.MSELoss(reduction="sum")
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for t in range(20):
    y_pred = model(xx)
    loss = loss_fn(y_pred, y)
    losses.append(loss.item())
    if t % 10 == 9:
        print(t, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"Result: y = {linear_layer.bias.item()} + {linear_layer.weight[:, 0].item()} x")
