"""A language model whose output layer shares the embedding's weight, with a layer used several times."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from utils import seed_parameters, update

rng = np.random.default_rng(8)
losses = []


class TiedModel(nn.Module):
    def __init__(self, ntoken, ninp):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.middle_linear = nn.Linear(ninp, ninp)
        self.norm = nn.LayerNorm(ninp)
        self.decoder = nn.Linear(ninp, ntoken)
        self.decoder.weight = self.encoder.weight
        self.init_weights()

    def init_weights(self):
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, repeats):
        h = self.encoder(input)
        for _ in range(repeats):
            h = self.norm(h + F.gelu(self.middle_linear(h)))
        return F.log_softmax(self.decoder(h), dim=-1)


model = TiedModel(11, 6).double()
seed_parameters(model)
assert model.decoder.weight is model.encoder.weight
n_params = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"{n_params} parameters")
losses.append(n_params)
losses.append(len(list(model.state_dict().keys())))

data = torch.from_numpy(rng.integers(0, 11, (6, 10)))
source, target = data[:, :-1], data[:, 1:].reshape(-1)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
for step in range(10):
    output = model(source, repeats=1 + step % 3)
    loss = F.nll_loss(output.reshape(-1, 11), target)
    losses.append(update(optimizer, loss))
losses.append(model.encoder.weight.grad.abs().sum().item())
