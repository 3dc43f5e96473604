"""Word embeddings: skip-grams with negative samples, and an n-gram model."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from utils import seed_parameters, update

text = """we are about to study the idea of a process that is directed by a pattern of rules and
people create programs to direct processes with the spirits of the computer""".split()
vocab = sorted(set(text))
word_to_ix = {word: i for i, word in enumerate(vocab)}
rng = np.random.default_rng(16)
losses = []


class SkipGram(nn.Module):
    def __init__(self, vocab_size, embedding_dim):
        super().__init__()
        self.u_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.v_embeddings = nn.Embedding(vocab_size, embedding_dim)

    def forward(self, u_pos, v_pos, v_neg):
        embed_u = self.u_embeddings(u_pos)
        score = torch.sum(embed_u * self.v_embeddings(v_pos), dim=1)
        neg_score = torch.bmm(self.v_embeddings(v_neg), embed_u.unsqueeze(2)).squeeze(2)
        return -(torch.sigmoid(score).log() + torch.sum(torch.log(torch.sigmoid(-neg_score)), 1)).mean()


class NGramLanguageModeler(nn.Module):
    def __init__(self, vocab_size, embedding_dim, context_size):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.linear1 = nn.Linear(context_size * embedding_dim, 16)
        self.linear2 = nn.Linear(16, vocab_size)

    def forward(self, inputs):
        embeds = self.embeddings(inputs).view((1, -1))
        out = F.relu(self.linear1(embeds))
        return F.log_softmax(self.linear2(out), dim=1)


skipgram = SkipGram(len(vocab), 5).double()
seed_parameters(skipgram)
optimizer = optim.SGD(skipgram.parameters(), lr=0.5)
ids = torch.tensor([word_to_ix[w] for w in text], dtype=torch.long)
for offset in (1, 2, 1, 2):
    negatives = torch.from_numpy(rng.integers(0, len(vocab), (len(ids) - offset, 3)))
    loss = skipgram(ids[:-offset], ids[offset:], negatives)
    losses.append(update(optimizer, loss))

model = NGramLanguageModeler(len(vocab), 4, 2).double()
seed_parameters(model)
loss_function = nn.NLLLoss()
optimizer = optim.SGD(model.parameters(), lr=0.05)
ngrams = [([text[i - 2], text[i - 1]], text[i]) for i in range(2, len(text))]
total_loss = 0
for context, target in ngrams:
    context_idxs = torch.tensor([word_to_ix[w] for w in context], dtype=torch.long)
    model.zero_grad()
    log_probs = model(context_idxs)
    loss = loss_function(log_probs, torch.tensor([word_to_ix[target]], dtype=torch.long))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    total_loss += loss.item()
similarity = F.cosine_similarity(skipgram.u_embeddings.weight[:1], skipgram.u_embeddings.weight)
values, indices = similarity.sort(descending=True)
print(total_loss, vocab[indices[1]], values[1].item())
losses += similarity.tolist()
