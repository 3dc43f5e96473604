"""Classify points of three clouds with a multilayer perceptron."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"Using {device} device")

rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 60)
points = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])[labels] + rng.normal(size=(60, 2))
X, y = torch.from_numpy(points), torch.from_numpy(labels)
train_loader = DataLoader(TensorDataset(X[:45], y[:45]), batch_size=15)
test_loader = DataLoader(TensorDataset(X[45:], y[45:]), batch_size=15)
losses = []


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 16)
        self.fc2 = nn.Linear(16, 16)
        self.fc3 = nn.Linear(16, 3)
        self.dropout = nn.Dropout(p=0.0)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = self.dropout(F.relu(self.fc2(x)))
        return self.fc3(x)


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


def train(dataloader, model, loss_fn, optimizer):
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        loss = loss_fn(model(X), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def test(dataloader, model, loss_fn):
    size = len(dataloader.dataset)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            X, y = X.to(device), y.to(device)
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    losses.append(test_loss / len(dataloader))
    losses.append(correct / size)
    print(f"Test Error: \n Accuracy: {(100 * correct / size):>0.1f}%, Avg loss: {losses[-2]:>8f} \n")


model = NeuralNetwork().double().to(device)
seed_parameters(model)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(4):
    print(f"Epoch {epoch + 1}\n-------------------------------")
    train(train_loader, model, loss_fn, optimizer)
    test(test_loader, model, loss_fn)
