"""Reverse sequences with an encoder, a decoder with attention, and teacher forcing."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, TensorDataset
from utils import seed_parameters

SOS_token, EOS_token, MAX_LENGTH, n_words, hidden_size = 0, 1, 5, 8, 10
rng = np.random.default_rng(17)
losses = []


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.0):
        super(EncoderRNN, self).__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, 1, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super(BahdanauAttention, self).__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super(AttnDecoderRNN, self).__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        decoder_input = torch.empty(encoder_outputs.size(0), 1, dtype=torch.long).fill_(SOS_token)
        decoder_hidden, decoder_outputs, attentions = encoder_hidden, [], []
        for i in range(MAX_LENGTH):
            context, attn = self.attention(decoder_hidden.permute(1, 0, 2), encoder_outputs)
            input_gru = torch.cat((self.embedding(decoder_input), context), dim=2)
            output, decoder_hidden = self.gru(input_gru, decoder_hidden)
            decoder_outputs.append(self.out(output))
            attentions.append(attn)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = decoder_outputs[-1].topk(1)
                decoder_input = topi.squeeze(-1).detach()
        decoder_outputs = F.log_softmax(torch.cat(decoder_outputs, dim=1), dim=-1)
        return decoder_outputs, torch.cat(attentions, dim=1)


words = rng.integers(2, n_words, (12, MAX_LENGTH - 1))
end = np.full((12, 1), EOS_token)
inputs = torch.tensor(np.concatenate([words, end], axis=1))
targets = torch.tensor(np.concatenate([words[:, ::-1].copy(), end], axis=1))
train_dataloader = DataLoader(TensorDataset(inputs, targets), batch_size=6)
encoder, decoder = EncoderRNN(n_words, hidden_size).double(), AttnDecoderRNN(hidden_size, n_words).double()
seed_parameters(encoder, 0)
seed_parameters(decoder, 1)
encoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=0.01)
criterion = nn.NLLLoss()
for epoch in range(3):
    for input_tensor, target_tensor in train_dataloader:
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        decoder_outputs, _ = decoder(*encoder(input_tensor), target_tensor)
        loss = criterion(decoder_outputs.view(-1, decoder_outputs.size(-1)), target_tensor.view(-1))
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        losses.append(loss.item())
with torch.no_grad():
    decoder_outputs, attentions = decoder(*encoder(inputs[:1]))
    losses += decoder_outputs.topk(1)[1].squeeze().tolist() + attentions[0, 0].tolist()
