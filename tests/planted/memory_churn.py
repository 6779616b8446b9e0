"""Activations of a hundred megabytes go back to the system in every step."""
# planted: memory-churn
# profile: --steps 40

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pictures, labels = torch.randn(256, 3, 64, 64), torch.arange(256) % 10
loader = DataLoader(TensorDataset(pictures, labels), batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 64, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for epoch in range(20):
    for picture, label in loader:
        loss = nn.functional.cross_entropy(model(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
