"""Tag words with a recurrent network and a conditional random field: the forward algorithm, and Viterbi decoding."""

import numpy as np
import torch
import torch.nn as nn

START_TAG, STOP_TAG = "<START>", "<STOP>"
tag_to_ix = {"B": 0, "I": 1, "O": 2, START_TAG: 3, STOP_TAG: 4}
rng = np.random.default_rng(41)
losses = []


def argmax(vec):
    # return the argmax as a python int
    _, idx = torch.max(vec, 1)
    return idx.item()


# Compute log sum exp in a numerically stable way for the forward algorithm
def log_sum_exp(vec):
    max_score = vec[0, argmax(vec)]
    max_score_broadcast = max_score.view(1, -1).expand(1, vec.size()[1])
    return max_score + torch.log(torch.sum(torch.exp(vec - max_score_broadcast)))


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab_size, embedding_dim, hidden_dim):
        super(BiLSTM_CRF, self).__init__()
        self.hidden_dim, self.tagset_size = hidden_dim, len(tag_to_ix)
        self.word_embeds = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden_dim, self.tagset_size)
        self.transitions = nn.Parameter(torch.randn(self.tagset_size, self.tagset_size))

    def _forward_alg(self, feats):
        init_alphas = torch.full((1, self.tagset_size), -10000.0, dtype=torch.double)
        init_alphas[0][tag_to_ix[START_TAG]] = 0.0
        forward_var = init_alphas
        for feat in feats:
            alphas_t = []
            for next_tag in range(self.tagset_size):
                emit_score = feat[next_tag].view(1, -1).expand(1, self.tagset_size)
                trans_score = self.transitions[next_tag].view(1, -1)
                alphas_t.append(log_sum_exp(forward_var + trans_score + emit_score).view(1))
            forward_var = torch.cat(alphas_t).view(1, -1)
        return log_sum_exp(forward_var + self.transitions[tag_to_ix[STOP_TAG]])

    def _get_lstm_features(self, sentence):
        embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
        lstm_out, _ = self.lstm(embeds)
        return self.hidden2tag(lstm_out.view(len(sentence), self.hidden_dim))

    def _score_sentence(self, feats, tags):
        score = torch.zeros(1, dtype=torch.double)
        tags = torch.cat([torch.tensor([tag_to_ix[START_TAG]], dtype=torch.long), tags])
        for i, feat in enumerate(feats):
            score = score + self.transitions[tags[i + 1], tags[i]] + feat[tags[i + 1]]
        return score + self.transitions[tag_to_ix[STOP_TAG], tags[-1]]

    def viterbi_decode(self, feats):
        forward_var = torch.full((1, self.tagset_size), -10000.0, dtype=torch.double)
        forward_var[0][tag_to_ix[START_TAG]] = 0
        backpointers = []
        for feat in feats:
            viterbivars, best = torch.max(forward_var + self.transitions, 1)
            backpointers.append(best)
            forward_var = (viterbivars + feat).view(1, -1)
        best_path = [argmax(forward_var + self.transitions[tag_to_ix[STOP_TAG]])]
        for best in reversed(backpointers):
            best_path.append(best[best_path[-1]].item())
        return forward_var.max().item(), best_path

    def neg_log_likelihood(self, sentence, tags):
        feats = self._get_lstm_features(sentence)
        return self._forward_alg(feats) - self._score_sentence(feats, tags)


model = BiLSTM_CRF(9, 4, 4).double()
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(p.shape))))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-4)
for epoch in range(3):
    for length in (5, 3):
        model.zero_grad()
        sentence, tags = torch.arange(length), torch.arange(length) % 3
        loss = model.neg_log_likelihood(sentence, tags)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
with torch.no_grad():
    score, path = model.viterbi_decode(model._get_lstm_features(torch.arange(5)))
losses += [score, *path]
