"""A small set of recordings: an epoch is over after a few batches, and then the workers are started anew."""
# planted: workers-restart
# profile: --steps 60

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    def __init__(self, count=64):
        self.signals = torch.randn(count, 3, 400)

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        time.sleep(0.0004)  # the file system
        shift = random.randrange(400)
        return torch.roll(self.signals[index], shift, dims=-1), index % 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 32, 9), nn.ReLU(), nn.Conv1d(32, 32, 9), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.conv(x).amax(-1))


loader = DataLoader(Recordings(), batch_size=16, shuffle=True, num_workers=2)  # <- here
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(200):
    for signals, labels in loader:
        loss = nn.functional.cross_entropy(model(signals), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
