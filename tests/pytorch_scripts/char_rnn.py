"""Predict the next character of a text with a recurrent network."""

import numpy as np
import torch
import torch.nn as nn

text = "the quick brown fox jumps over the lazy dog and then the dog jumps over the fox "
chars = sorted(set(text))
stoi = {ch: i for i, ch in enumerate(chars)}
itos = {i: ch for ch, i in stoi.items()}
n_characters = len(chars)
losses = []


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size, n_layers=1):
        super().__init__()
        self.hidden_size = hidden_size
        self.n_layers = n_layers
        self.encoder = nn.Embedding(input_size, hidden_size)
        self.rnn = nn.GRU(hidden_size, hidden_size, n_layers)
        self.decoder = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden):
        batch_size = input.size(1)
        output, hidden = self.rnn(self.encoder(input), hidden)
        output = self.decoder(output.view(-1, self.hidden_size))
        return output.view(-1, batch_size, n_characters), hidden

    def init_hidden(self, batch_size):
        return torch.zeros(self.n_layers, batch_size, self.hidden_size, dtype=torch.float64)


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


def char_tensor(string):
    tensor = torch.zeros(len(string)).long()
    for c in range(len(string)):
        tensor[c] = stoi[string[c]]
    return tensor


def generate(model, prime="th", length=12):
    model.eval()
    result = prime
    with torch.no_grad():
        hidden = model.init_hidden(1)
        out, hidden = model(char_tensor(prime).view(-1, 1), hidden)
        for _ in range(length):
            top_n, top_i = out[-1, 0].topk(1)
            result += itos[top_i[0].item()]
            out, hidden = model(top_i.view(1, 1), hidden)
    model.train()
    return result


model = CharRNN(n_characters, 12, n_characters, n_layers=2).double()
seed_parameters(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss()
data = char_tensor(text)
data = data[: len(data) // 2 * 2].view(2, -1).t().contiguous()
hidden = model.init_hidden(2)
for epoch in range(2):
    for i in range(0, data.size(0) - 1, 13):
        x, y = data[i : i + 13], data[i + 1 : i + 14]
        x = x[: len(y)]
        hidden = hidden.detach()
        model.zero_grad()
        output, hidden = model(x, hidden)
        loss = criterion(output.view(-1, n_characters), y.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
sample = generate(model)
print(sample)
losses += [stoi[c] for c in sample]
