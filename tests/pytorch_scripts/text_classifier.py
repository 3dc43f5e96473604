"""Classify sequences of different lengths: an embedding, an LSTM, and its output at the last word."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from utils import seed_parameters

rng = np.random.default_rng(5)
losses = []


class Sentences(Dataset):
    """Sequences of words, with the label 1 if the word 1 is in the first half."""

    def __init__(self, n):
        self.texts = [rng.integers(1, 9, rng.integers(3, 9)) for _ in range(n)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, idx):
        text = torch.tensor(self.texts[idx], dtype=torch.long)
        return text, int((text[: len(text) // 2] == 1).any())


def collate_batch(batch):
    texts, labels = zip(*batch)
    lengths = torch.tensor([len(t) for t in texts])
    return pad_sequence(texts, batch_first=True, padding_value=0), lengths, torch.tensor(labels, dtype=torch.float64)


class TextClassifier(nn.Module):
    def __init__(self, vocab_size, embed_dim, hidden_dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(embed_dim, hidden_dim, num_layers=1, batch_first=True)
        self.fc = nn.Linear(hidden_dim, 1)

    def forward(self, text, lengths):
        output, (h_n, c_n) = self.lstm(self.embedding(text))
        index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, output.size(2))
        last = output.gather(1, index).squeeze(1)
        return self.fc(last).squeeze(-1)


model = TextClassifier(9, 6, 8).double()
seed_parameters(model)
with torch.no_grad():
    model.embedding.weight[0].fill_(0)
loader = DataLoader(Sentences(24), batch_size=8, shuffle=False, collate_fn=collate_batch, num_workers=0)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
for epoch in range(3):
    model.train()
    total_acc, total_count = 0, 0
    for text, lengths, label in loader:
        optimizer.zero_grad()
        predicted_label = model(text, lengths)
        loss = criterion(predicted_label, label)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        total_acc += ((predicted_label > 0) == label.bool()).sum().item()
        total_count += label.size(0)
        losses.append(loss.item())
    print("| epoch {:3d} | accuracy {:8.3f}".format(epoch, total_acc / total_count))
    losses.append(total_acc / total_count)
losses += model.embedding.weight[0].tolist()
