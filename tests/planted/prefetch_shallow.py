"""Log records from a database: mostly quick, but now and then a page has to be read first."""
# planted: prefetch-shallow
# profile: --steps 120

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, count=20_000, seed=0):
        rng = np.random.default_rng(seed)
        self.values = rng.normal(size=(count, 96)).astype(np.float32)
        self.cold = rng.random(count) < 0.0024

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        time.sleep(0.1 if self.cold[index] else 0.0001)
        return self.values[index] + np.random.normal(0, 0.01, 96).astype(np.float32), index % 2


order = torch.Generator().manual_seed(3)
loader = DataLoader(  # <- here
    Records(), batch_size=32, shuffle=True, num_workers=2, prefetch_factor=1, generator=order
)
model = nn.Sequential(nn.Linear(96, 1500), nn.GELU(), nn.Linear(1500, 1500), nn.GELU(), nn.Linear(1500, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(3):
    for values, labels in loader:
        loss = nn.functional.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
