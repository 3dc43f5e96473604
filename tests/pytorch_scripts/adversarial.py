"""Examples that mislead a trained network: the sign of the gradient with respect to the image."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from utils import seed_parameters, update

rng = np.random.default_rng(31)
labels = rng.integers(0, 2, 30)
images = torch.tensor(np.clip(rng.normal(0.5, 0.2, (30, 1, 6, 6)) + 0.2 * labels[:, None, None, None], 0, 1))
labels = torch.tensor(labels)
losses = []


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16, 2)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc1(x), dim=1)


def fgsm_attack(image, epsilon, data_grad):
    sign_data_grad = data_grad.sign()
    perturbed_image = image + epsilon * sign_data_grad
    return torch.clamp(perturbed_image, 0, 1)


model = Net().double()
seed_parameters(model)
model.eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(10):
    loss = F.nll_loss(model(images), labels)
    losses.append(update(optimizer, loss))

for epsilon in [0, 0.1, 0.2]:
    correct = 0
    for data, target in zip(images.split(8), labels.split(8)):
        data = data.clone().detach()
        data.requires_grad = True
        output = model(data)
        loss = F.nll_loss(output, target)
        model.zero_grad()
        loss.backward()
        data_grad = data.grad.data
        perturbed = fgsm_attack(data, epsilon, data_grad)
        output = model(perturbed)
        final_pred = output.max(1)[1]
        correct += (final_pred == target).sum().item()
        losses.append(F.nll_loss(output, target).item())
    print(f"Epsilon: {epsilon}\tTest Accuracy = {correct} / {len(labels)}")
    losses.append(correct)
