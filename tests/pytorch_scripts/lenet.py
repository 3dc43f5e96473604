"""Classify small images with a convolutional network."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
rng = np.random.default_rng(1)
labels = rng.integers(0, 4, 24)
images = rng.normal(0.0, 0.3, (24, 1, 16, 16)).astype(np.float32)
for image, label in zip(images, labels):
    image[0, 4 * label : 4 * label + 4] += 1.0
losses = []


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(8 * 3 * 3, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc1(x))
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


net = Net().to(device)
seed_parameters(net)
print(net)
optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.5, weight_decay=1e-4)
for epoch in range(3):
    running_loss = 0.0
    for i in range(0, 24, 8):
        inputs = torch.from_numpy(images[i : i + 8]).to(device)
        targets = torch.tensor(labels[i : i + 8], dtype=torch.long, device=device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = F.nll_loss(outputs, targets)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        losses.append(loss.item())
    print(f"[{epoch + 1}] loss: {running_loss / 3:.3f}")

correct = total = 0
net.eval()
with torch.no_grad():
    outputs = net(torch.from_numpy(images).to(device))
    _, predicted = torch.max(outputs.data, 1, keepdim=True)
    targets = torch.from_numpy(labels).to(device)
    correct += predicted.eq(targets.data.view_as(predicted)).sum().item()
    total += targets.size(0)
print("Accuracy: %d %%" % (100 * correct / total))
losses.append(correct / total)
