"""Learn representations by agreement between two views of each sample, and measure the accuracy of the nearest k."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(43)
centers = rng.normal(size=(6, 5))
losses = []


def info_nce_loss(features, n_views=2, temperature=0.5):
    batch_size = features.shape[0] // n_views
    labels = torch.cat([torch.arange(batch_size) for i in range(n_views)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).double()
    features = F.normalize(features, dim=1)
    similarity_matrix = torch.matmul(features, features.T)
    # discard the main diagonal from both: labels and similarities matrix
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
    positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1)
    return logits / temperature, torch.zeros(logits.shape[0], dtype=torch.long)


def accuracy(output, target, topk=(1,)):
    """Computes the accuracy over the k top predictions for the specified values of k"""
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)).double()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, tuple(p.shape))))
optimizer = torch.optim.Adam(model.parameters(), 0.01, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=0, last_epoch=-1)
for epoch in range(6):
    views = torch.from_numpy(np.concatenate([centers + rng.normal(0, 0.1, (6, 5)) for _ in range(2)]))
    logits, labels = info_nce_loss(model(views))
    loss = nn.CrossEntropyLoss()(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    top1, top5 = accuracy(logits, labels, topk=(1, 5))
    losses += [loss.item(), top1[0].item(), top5[0].item()]
    scheduler.step()

first, second = torch.split(model(views), 6, dim=0)
same = F.cosine_similarity(first, second)
spread = torch.std(first, 0) / torch.var(first)
losses += same.tolist() + spread.tolist()
