"""A network for small digits, with a schedule, and a checkpoint of everything that training needs."""

import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(42)
labels = rng.integers(0, 3, 24)
images = rng.normal(0.1, 0.3, (24, 1, 8, 8)).astype(np.float32)
for image, label in zip(images, labels):
    image[0, :, 2 * label : 2 * label + 2] += 1.0
PATH = os.path.join(tempfile.mkdtemp(), "mnist_cnn.pt")
losses = []


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(36, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.max(1, keepdim=True)[1]  # get the index of the max log-probability
            correct += pred.eq(target.view_as(pred)).sum().item()
            correct += (output.argmax(1) == target).type(torch.float).sum().item()
    size = 2 * len(test_loader.dataset)
    losses.extend([test_loss / size, correct])
    print(f"Test Error: \n Accuracy: {(100 * correct / size):>0.1f}%, Avg loss: {losses[-2]:>8f} \n")


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(f"on {device.type}")
mean, std = float(torch.from_numpy(images).mean()), float(torch.from_numpy(images).std())
dataset = TensorDataset(torch.from_numpy((images - mean) / std), torch.from_numpy(labels))
loader = DataLoader(dataset, batch_size=8, shuffle=False, num_workers=0, pin_memory=True)
model = Net().to(device)
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.2, tuple(p.shape))))
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(1, 4):
    train(model, device, loader, optimizer, epoch)
    test(model, device, loader)
    scheduler.step()
    torch.save(
        {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "loss": losses[-1]}, PATH
    )

checkpoint = torch.load(PATH, map_location=device)
model, start = Net().to(device), checkpoint["epoch"]
model.load_state_dict(checkpoint["model"])
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
optimizer.load_state_dict(checkpoint["optimizer"])
train(model, device, loader, optimizer, start + 1)
losses.append(start)
print(model)
with torch.no_grad():
    outputs = model(torch.from_numpy(images).to(device))
    _, predicted = torch.max(outputs.data, 1, keepdim=True)
    targets = torch.tensor(labels, dtype=torch.long, device=device)
    correct = predicted.eq(targets.data.view_as(predicted)).sum().item()
print("Accuracy: %d %%" % (100 * correct / targets.size(0)))
losses.append(correct)
