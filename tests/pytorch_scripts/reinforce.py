"""REINFORCE on a walk along a line, with the policy's actions drawn by NumPy."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

rng = np.random.default_rng(7)
eps = np.finfo(np.float64).eps.item()
losses = []


class Line:
    """Positions 0 to 6; the goal is 6."""

    def reset(self):
        self.position, self.steps = 3, 0
        return self.observation()

    def observation(self):
        return np.eye(7)[self.position]

    def step(self, action):
        self.position = min(max(self.position + (1 if action else -1), 0), 6)
        self.steps += 1
        done = self.position == 6 or self.steps == 12
        return self.observation(), 1.0 if self.position == 6 else -0.1, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(7, 12)
        self.affine2 = nn.Linear(12, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.affine1(x))), dim=1)


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


policy = Policy().double()
seed_parameters(policy)
optimizer = optim.Adam(policy.parameters(), lr=1e-2)


def select_action(state):
    probs = policy(torch.from_numpy(state).unsqueeze(0))
    action = int(rng.random() < probs[0, 1].item())
    policy.saved_log_probs.append(torch.log(probs[0, action]))
    return action


def finish_episode(gamma=0.95):
    R, returns = 0, []
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns, dtype=torch.float64)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    policy_loss = [-log_prob * R for log_prob, R in zip(policy.saved_log_probs, returns)]
    optimizer.zero_grad()
    policy_loss = torch.stack(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    losses.append(policy_loss.item())
    del policy.rewards[:]
    del policy.saved_log_probs[:]


env = Line()
for i_episode in range(8):
    state, done = env.reset(), False
    while not done:
        state, reward, done = env.step(select_action(state))
        policy.rewards.append(reward)
    losses.append(sum(policy.rewards))
    finish_episode()
print(f"Last reward: {losses[-2]:.2f}")
