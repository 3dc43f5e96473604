"""A small network learns from the softened outputs of a larger one."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from utils import seed_parameters

rng = np.random.default_rng(28)
inputs = torch.from_numpy(rng.normal(size=(24, 6)))
labels = torch.from_numpy(rng.integers(0, 4, 24))
losses = []


class DeepNN(nn.Module):
    def __init__(self, num_classes=4):
        super(DeepNN, self).__init__()
        self.classifier = nn.Sequential(
            nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, num_classes)
        )

    def forward(self, x):
        return self.classifier(x)


teacher = DeepNN().double()
student = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).double()
seed_parameters(teacher, 0)
seed_parameters(student, 1)
total_params_deep = "{:,}".format(sum(p.numel() for p in teacher.parameters()))
print(f"DeepNN parameters: {total_params_deep}")

T, soft_target_loss_weight, ce_loss_weight = 2, 0.25, 0.75
ce_loss = nn.CrossEntropyLoss()
kl_loss = nn.KLDivLoss(reduction="batchmean")
optimizer = optim.Adam(student.parameters(), lr=0.01)
teacher.eval()
student.train()
for epoch in range(8):
    optimizer.zero_grad()
    with torch.no_grad():
        teacher_logits = teacher(inputs)
    student_logits = student(inputs)
    soft_targets = nn.functional.softmax(teacher_logits / T, dim=-1)
    soft_prob = nn.functional.log_softmax(student_logits / T, dim=-1)
    soft_targets_loss = torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * (T**2)
    label_loss = ce_loss(student_logits, labels)
    loss = soft_target_loss_weight * soft_targets_loss + ce_loss_weight * label_loss
    loss = loss + 0.0 * kl_loss(input=soft_prob, target=soft_targets)
    loss.backward()
    optimizer.step()
    losses += [loss.item(), soft_targets_loss.item(), label_loss.item()]

student.eval()
_, predicted = torch.max(student(inputs).data, 1)
correct = (predicted == labels).sum().item()
print(f"Test accuracy: {100 * correct / labels.size(0):.2f}%")
losses.append(correct)
