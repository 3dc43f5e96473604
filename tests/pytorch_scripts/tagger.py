"""Tag the words of padded sentences with a bidirectional LSTM; the padding is ignored by the loss."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.nn.utils.rnn import pad_sequence
from utils import seed_parameters

rng = np.random.default_rng(25)
sentences = [torch.from_numpy(rng.integers(1, 10, n)) for n in (5, 3, 6, 2)]
tags = [s.remainder(3) for s in sentences]
PAD_TAG = -100
losses = []


class LSTMTagger(nn.Module):
    def __init__(self, vocab_size, embedding_dim, hidden_dim, tagset_size):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, num_layers=2, bidirectional=True)
        self.hidden2tag = nn.Linear(2 * hidden_dim, tagset_size)

    def forward(self, sentence):
        embeds = self.word_embeddings(sentence)
        lstm_out, _ = self.lstm(embeds)
        return self.hidden2tag(lstm_out)


model = LSTMTagger(10, 4, 5, 3).double()
seed_parameters(model)
loss_function = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64), ignore_index=PAD_TAG)
optimizer = optim.SGD(model.parameters(), lr=0.5)
inputs = pad_sequence(sentences, padding_value=0)
targets = pad_sequence(tags, padding_value=PAD_TAG)
mask = targets.ne(PAD_TAG)
print(inputs.size(), targets.size(), mask.sum())
for epoch in range(6):
    model.zero_grad()
    tag_scores = model(inputs)
    loss = loss_function(tag_scores.view(-1, 3), targets.view(-1))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    accuracy = (tag_scores.argmax(dim=2) == targets).masked_select(mask).float().mean()
    losses.append(accuracy.item())

single = model(sentences[1].view(-1, 1)).view(len(sentences[1]), -1)
losses += torch.softmax(single, dim=1)[0].tolist()
