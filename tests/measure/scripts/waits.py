"""Items that wait; every sample of an epoch must come once, whoever loads it."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

ITEMS = 480


class Waits(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        if "alone" in sys.argv and get_worker_info() is not None:
            raise RuntimeError("planted: not in a worker")
        time.sleep(0.002)
        return torch.full((8,), index / ITEMS), index


model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Waits(), batch_size=8, shuffle=True)
for _ in range(1000):
    seen = []
    for x, indices in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += indices.tolist()
    assert sorted(seen) == list(range(ITEMS)), "planted: samples were lost or came twice"
