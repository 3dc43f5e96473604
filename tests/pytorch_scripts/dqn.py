"""Deep Q-learning from a replay memory, with a target network that follows slowly."""

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from utils import seed_parameters

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
random.seed(0)
losses = []


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 10)
        self.layer2 = nn.Linear(10, n_actions)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


policy_net, target_net = DQN(2, 2).double(), DQN(2, 2).double()
seed_parameters(policy_net)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
memory = ReplayMemory(100)
BATCH_SIZE, GAMMA, TAU = 8, 0.9, 0.1


def select_action(state):
    if random.random() < 0.3:
        return torch.tensor([[random.randrange(2)]], dtype=torch.long)
    with torch.no_grad():
        return policy_net(state).max(1).indices.view(1, 1)


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_action_values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    next_state_values = torch.zeros(BATCH_SIZE, dtype=torch.float64)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected = next_state_values * GAMMA + torch.cat(batch.reward)
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    losses.append(loss.item())


for i_episode in range(4):
    position, velocity = 0.0, 0.1
    state = torch.tensor([[position, velocity]], dtype=torch.float64)
    for t in range(8):
        action = select_action(state)
        velocity += 0.2 if action.item() else -0.2
        position += velocity
        reward = torch.tensor([-abs(position)], dtype=torch.float64)
        next_state = None if abs(position) > 1 else torch.tensor([[position, velocity]], dtype=torch.float64)
        memory.push(state, action, next_state, reward)
        optimize_model()
        weights, policy_weights = target_net.state_dict(), policy_net.state_dict()
        for key in policy_weights:
            weights[key] = policy_weights[key] * TAU + weights[key] * (1 - TAU)
        target_net.load_state_dict(weights)
        if next_state is None:
            break
        state = next_state
print(f"{len(losses)} updates")
