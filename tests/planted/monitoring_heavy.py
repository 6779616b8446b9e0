"""Watches the spectrum of the weights in every step, to see whether the layers collapse."""
# planted: monitoring-heavy
# profile: --steps 50

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x, y = torch.randn(10_000, 200), torch.randint(0, 3, (10_000,))
loader = DataLoader(TensorDataset(x, y), batch_size=250, shuffle=True)
model = nn.Sequential(nn.Linear(200, 160), nn.Tanh(), nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ranks = []


def effective_rank(weight):
    spectrum = torch.linalg.svdvals(weight)  # <- here
    spectrum = spectrum / spectrum.sum()
    return torch.exp(-(spectrum * spectrum.log()).sum())


for epoch in range(20):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            ranks.append([effective_rank(module.weight) for module in model if isinstance(module, nn.Linear)])
