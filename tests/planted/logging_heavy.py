"""Writes a histogram of every weight to TensorBoard in every step."""
# planted: logging-heavy
# profile: --steps 60

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

x, y = torch.randn(6400, 128), torch.randint(0, 5, (6400,))
loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
writer = SummaryWriter("runs")

step = 0
for epoch in range(20):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        writer.add_scalar("train/loss", loss.item(), step)
        for name, weight in model.named_parameters():
            writer.add_histogram(name, weight, step)  # <- here
        step += 1
writer.close()
