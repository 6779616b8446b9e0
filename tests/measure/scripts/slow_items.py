"""Items that wait, through a loader that is built once."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.full((8,), float(index)), torch.tensor([float(index % 2)])


torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Rows(), batch_size=4, shuffle=True)
for _epoch in range(1000):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
