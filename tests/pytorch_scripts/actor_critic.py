"""An actor and a critic with a common first layer, on a bandit with contexts."""

from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from utils import seed_parameters, update

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])
rng = np.random.default_rng(35)
eps = np.finfo(np.float32).eps.item()
losses = []


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 16)
        self.action_head = nn.Linear(16, 3)
        self.value_head = nn.Linear(16, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        action_prob = F.softmax(self.action_head(x), dim=-1)
        return action_prob, self.value_head(x)


model = Policy()
seed_parameters(model)
optimizer = optim.Adam(model.parameters(), lr=3e-2)


def select_action(state):
    state = torch.from_numpy(state).float()
    probs, state_value = model(state)
    threshold = rng.random()
    action = int((probs.detach().cumsum(0) < threshold).sum().item())
    model.saved_actions.append(SavedAction(probs.log()[action], state_value))
    return action


def finish_episode():
    R, saved_actions, policy_losses, value_losses, returns = 0, model.saved_actions, [], [], []
    for r in model.rewards[::-1]:
        R = r + 0.9 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for (log_prob, value), R in zip(saved_actions, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    entropy = -sum((saved.log_prob * saved.log_prob.exp()) for saved in saved_actions)
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum() - 0.01 * entropy
    losses.append(update(optimizer, loss))
    del model.rewards[:]
    del model.saved_actions[:]


for i_episode in range(6):
    for t in range(6):
        state = rng.normal(size=4)
        action = select_action(state)
        model.rewards.append(float(action == int(state.argmax() % 3)))
    losses.append(sum(model.rewards))
    finish_episode()
print(f"last reward {losses[-2]}")
