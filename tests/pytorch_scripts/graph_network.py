"""Node classification on a small graph: convolutions by a normalized adjacency matrix, and attention over edges."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter
from utils import seed_parameters

rng = np.random.default_rng(33)
n = 12
adjacency = torch.from_numpy((rng.random((n, n)) < 0.25).astype(np.float64))
adjacency = ((adjacency + adjacency.t() + torch.eye(n, dtype=torch.float64)) > 0).double()
features = torch.from_numpy(rng.normal(size=(n, 5)))
labels = torch.from_numpy(rng.integers(0, 3, n))
idx_train, idx_val = torch.arange(8), torch.arange(8, n)
losses = []


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(torch.empty(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.empty(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.mm(adj, torch.mm(input, self.weight))
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass, bias=False)
        self.a = nn.Linear(2 * nhid, 1, bias=False)

    def forward(self, x, adj):
        degree = adj.sum(1)
        d_inv_sqrt = torch.pow(degree, -0.5)
        norm = d_inv_sqrt.view(-1, 1) * adj * d_inv_sqrt.view(1, -1)
        h = F.relu(self.gc1(x, norm))
        pairs = torch.cat([h.unsqueeze(1).expand(-1, n, -1), h.unsqueeze(0).expand(n, -1, -1)], dim=-1)
        scores = F.leaky_relu(self.a(pairs).squeeze(-1), negative_slope=0.2)
        attention = F.softmax(scores.masked_fill(adj == 0, -9e15), dim=1)
        return F.log_softmax(self.gc2(h, attention), dim=1)


model = GCN(5, 6, 3).double()
seed_parameters(model)
print(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for epoch in range(8):
    model.train()
    optimizer.zero_grad()
    output = model(features, adjacency)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()
    loss_val = F.nll_loss(output[idx_val], labels[idx_val])
    acc_val = output[idx_val].max(1)[1].type_as(labels).eq(labels[idx_val]).double().sum() / len(idx_val)
    losses += [loss_train.item(), loss_val.item(), acc_val.item()]
