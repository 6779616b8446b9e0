"""Steps of a certain amount of work: `spins.py WORK [WORKERS] [STEPS] [EPOCHS]`; after so many steps it dies.

Every sample of an epoch must come once.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ITEMS = 256
given = [*sys.argv[1:], *("40", "0", str(10**9), "1000")[len(sys.argv) - 1 :]]
work, workers, lasts, epochs = map(int, given)
rows = torch.arange(ITEMS, dtype=torch.float32).reshape(-1, 1)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = DataLoader(TensorDataset(rows), batch_size=8, shuffle=True, num_workers=workers)
made = 0
for _ in range(epochs):
    seen = []
    for (x,) in loader:
        total = 0
        for number in range(work * 1000):
            total += number
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += x.flatten().int().tolist()
        made += 1
        if made == lasts:
            raise RuntimeError("planted")
    assert sorted(seen) == list(range(ITEMS)), "planted: samples were lost or came twice"
