"""Recommendations: users and items as vectors, with biases and weight decay."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from utils import seed_parameters, update

rng = np.random.default_rng(22)
n_users, n_items = 6, 8
ratings = [(int(u), int(i), float((u * i) % 5)) for u, i in rng.integers(0, (n_users, n_items), (40, 2))]
losses = []


class RatingsDataset(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        user, item, rating = self.rows[index]
        return user, item, torch.tensor(rating, dtype=torch.float64)


class MF(nn.Module):
    def __init__(self, num_users, num_items, emb_size=4):
        super(MF, self).__init__()
        self.user_emb = nn.Embedding(num_users, emb_size)
        self.user_bias = nn.Embedding(num_users, 1)
        self.item_emb = nn.Embedding(num_items, emb_size)
        self.item_bias = nn.Embedding(num_items, 1)
        self.user_emb.weight.data.uniform_(0, 0.05)
        self.item_emb.weight.data.uniform_(0, 0.05)
        nn.init.normal_(self.user_bias.weight, std=0.01)

    def forward(self, u, v):
        U, V = self.user_emb(u), self.item_emb(v)
        b_u, b_v = self.user_bias(u).squeeze(), self.item_bias(v).squeeze()
        return (U * V).sum(1) + b_u + b_v


dataset = RatingsDataset(ratings)
train_set, valid_set = random_split(dataset, [30, 10])
assert len(train_set) == 30 and len(valid_set) == 10
train_set, valid_set = Subset(dataset, range(30)), Subset(dataset, list(range(30, 40)))
train_loader = DataLoader(train_set, batch_size=7, num_workers=0, drop_last=False, pin_memory=False)
valid_loader = DataLoader(valid_set, batch_size=10)
model = MF(n_users, n_items).double()
seed_parameters(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=1e-3)
for epoch in range(4):
    model.train()
    for users, items, scores in train_loader:
        y_hat = model(users, items)
        loss = F.mse_loss(input=y_hat, target=scores)
        losses.append(update(optimizer, loss))
    model.eval()
    with torch.set_grad_enabled(False):
        for users, items, scores in valid_loader:
            valid_loss = F.l1_loss(model(users, items), target=scores, reduction="none")
            assert not valid_loss.requires_grad
            losses += valid_loss.tolist()
print("train_loss %.3f valid_loss %.3f" % (loss.item(), valid_loss.mean().item()))
