"""A language model of characters that carries its state from part to part, and reads on by itself."""

import numpy as np
import torch
import torch.nn as nn

corpus = "hello world, hello there, hello words, " * 2
chars = sorted(set(corpus))
char_to_ix = {ch: i for i, ch in enumerate(chars)}
ids = torch.LongTensor([char_to_ix[ch] for ch in corpus])
batch_size, seq_length, num_batches = 2, 9, len(corpus) // 2
ids = ids[: num_batches * batch_size].view(batch_size, -1)
losses = []


class RNNLM(nn.Module):
    def __init__(self, vocab_size, embed_size, hidden_size, num_layers):
        super(RNNLM, self).__init__()
        self.embed = nn.Embedding(vocab_size, embed_size)
        self.lstm = nn.LSTM(embed_size, hidden_size, num_layers, batch_first=True)
        self.linear = nn.Linear(hidden_size, vocab_size)

    def forward(self, x, h):
        x = self.embed(x)
        out, (h, c) = self.lstm(x, h)
        out = out.reshape(out.size(0) * out.size(1), out.size(2))
        return self.linear(out), (h, c)


def detach(states):
    return [state.detach() for state in states]


model = RNNLM(len(chars), 6, 10, 1)
rng = np.random.default_rng(46)
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape)).astype("float32")))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(3):
    states = (torch.zeros(1, batch_size, 10), torch.zeros(1, batch_size, 10))
    for i in range(0, ids.size(1) - seq_length, seq_length):
        inputs = ids[:, i : i + seq_length]
        targets = ids[:, (i + 1) : (i + 1) + seq_length]
        states = detach(states)
        outputs, states = model(inputs, states)
        loss = criterion(outputs, targets.reshape(-1))
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())

with torch.no_grad():
    state = (torch.zeros(1, 1, 10), torch.zeros(1, 1, 10))
    input, text = torch.LongTensor([[char_to_ix["h"]]]), "h"
    for i in range(6):
        output, state = model(input, state)
        prob, word_id = output.softmax(dim=1).max(1)
        input = word_id.view(1, 1)
        losses.append(prob.item())
        text += chars[word_id.item()]
print(text)
