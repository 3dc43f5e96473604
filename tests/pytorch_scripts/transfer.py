"""Train a network, move its first layers into another one, freeze them, and train a new head."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from utils import seed_parameters

rng = np.random.default_rng(13)
x = torch.from_numpy(rng.normal(size=(40, 6)))
first_labels = (x[:, 0] + x[:, 1] > 0).long()
second_labels = (x[:, 0] - x[:, 2] > 0).long() + (x[:, 1] > 0).long()
losses = []


class Backbone(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ELU(), nn.Linear(12, 8), nn.ELU())
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(self.features(x))


def fit(model, labels, optimizer, steps):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


pretrained = Backbone(2).double()
seed_parameters(pretrained)
fit(pretrained, first_labels, optim.SGD(pretrained.parameters(), lr=0.2, momentum=0.9, nesterov=True), 6)

model = Backbone(2).double()
state = {k: v for k, v in pretrained.state_dict().items() if not k.startswith("fc.")}
print(model.load_state_dict(state, strict=False))
for param in model.parameters():
    param.requires_grad = False
num_ftrs = model.fc.in_features
model.fc = nn.Linear(num_ftrs, 3).double()
seed_parameters(model.fc)
fit(model, second_labels, optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=0.05), 6)
assert model.features[0].weight.grad is None
assert torch.allclose(model.features[0].weight, pretrained.features[0].weight)

for param in model.features.parameters():
    param.requires_grad = True
optimizer = optim.SGD(
    [{"params": model.features.parameters(), "lr": 0.01}, {"params": model.fc.parameters()}], lr=0.1, momentum=0.5
)
fit(model, second_labels, optimizer, 3)
best_model, best_optimizer = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
fit(model, second_labels, optimizer, 2)
model.load_state_dict(best_model)
optimizer.load_state_dict(best_optimizer)
fit(model, second_labels, optimizer, 1)
keys = model.load_state_dict({"fc.weight": torch.zeros(3, 8, dtype=torch.float64), "head": x}, strict=False)
assert "fc.bias" in keys.missing_keys and keys.unexpected_keys == ["head"]
model.load_state_dict(best_model)
for name, value in model.state_dict().items():
    print(name, "\t", value.size())
    losses.append(value.double().sum().item())
with torch.no_grad():
    outputs = model(x)
    _, preds = torch.max(outputs, 1)
    losses.append(torch.sum(preds == second_labels.data).item() / len(x))
print(f"accuracy {losses[-1]:.2f}")
