"""A transformer block from its parts, with the norm that divides by the unbiased standard deviation."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(40)
losses = []


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


class LayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super(LayerNorm, self).__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


def subsequent_mask(size):
    attn_shape = (1, size, size)
    return torch.triu(torch.ones(attn_shape), diagonal=1) == 0


def attention(query, key, value, mask=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super(MultiHeadedAttention, self).__init__()
        self.d_k = d_model // h
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)

    def forward(self, query, key, value, mask=None):
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = attention(query, key, value, mask=mask)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)


class Block(nn.Module):
    def __init__(self, vocab, d_model, h):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.attn, self.norm = MultiHeadedAttention(h, d_model), LayerNorm(d_model)
        self.generator = nn.Linear(d_model, vocab)

    def forward(self, tokens):
        x = self.embed(tokens) * math.sqrt(8)
        y = self.norm(x)
        return self.generator(x + self.attn(y, y, y, subsequent_mask(tokens.size(1)))).log_softmax(dim=-1)


model = Block(7, 8, 2).double()
for p in model.parameters():
    if p.dim() > 1:
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
    elif p.size(0) == 7:
        p.data.zero_()
for linear in model.attn.linears:
    linear.bias.data.zero_()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) * 4**-1.5))
tokens = torch.from_numpy(rng.integers(0, 7, (3, 6)))
for step in range(6):
    loss = nn.NLLLoss()(model(tokens[:, :-1]).reshape(-1, 7), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
_, next_word = torch.max(model(tokens)[:, -1], dim=1)
losses += next_word.tolist() + model.attn.attn[0, 0, -1].tolist()
