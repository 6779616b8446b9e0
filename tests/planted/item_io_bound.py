"""Short audio clips that come one by one from an object store; a random second of each is used."""
# planted: item-io-bound
# profile: --steps 60

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 4000


class Store:
    """Stands for a bucket on the network: every object takes some milliseconds to arrive."""

    def __init__(self):
        self.clips = torch.randn(64, 2 * RATE).mul(3000).to(torch.int16)

    def get(self, key):
        time.sleep(random.uniform(0.002, 0.006))  # <- here
        return self.clips[key % len(self.clips)]


class Clips(Dataset):
    def __init__(self, count=4000):
        self.count = count
        self.store = Store()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        clip = self.store.get(index)
        start = random.randrange(len(clip) - RATE)
        return clip[start : start + RATE].float() / 32768, index % 5


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 16, 64, stride=32)
        self.classify = nn.Linear(16, 5)

    def forward(self, wave):
        return self.classify(torch.relu(self.filters(wave[:, None])).mean(-1))


loader = DataLoader(Clips(), batch_size=16, shuffle=True, num_workers=2)
model = Listener()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(4):
    for waves, labels in loader:
        loss = nn.functional.cross_entropy(model(waves), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
