"""A classifier of eight layers, trained with two rows at a time."""
# planted: batch-too-small
# profile: --steps 600

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
x = torch.randn(4000, 24)
y = (x[:, :3].prod(1) > 0).long()

layers, width = [], 24
for _ in range(8):
    layers += [nn.Linear(width, 48), nn.LayerNorm(48), nn.GELU()]
    width = 48
model = nn.Sequential(*layers, nn.Linear(width, 2))

train = DataLoader(TensorDataset(x, y), batch_size=2, shuffle=True)  # <- here
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

for epoch in range(3):
    for rows, labels in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
