"""Satellite tiles from a network drive, loaded in the training process although a worker could do it meanwhile."""
# planted: workers-too-few
# profile: --steps 30

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self, count=3000):
        self.tiles = np.random.default_rng(3).integers(0, 4000, (256, 4, 48, 48), dtype=np.uint16)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.003)  # the drive answers
        tile = torch.from_numpy(self.tiles[index % 256].astype(np.float32) / 4000)
        return torch.rot90(tile, np.random.randint(4), (1, 2)), index % 8


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)
    )


train_loader = DataLoader(Tiles(), batch_size=16, shuffle=True, num_workers=0)  # <- here
net = nn.Sequential(block(4, 24), block(24, 32), block(32, 48), nn.Flatten(), nn.Linear(48 * 36, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
criterion = nn.CrossEntropyLoss()

for epoch in range(5):
    net.train()
    for tiles, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(net(tiles), labels)
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
