"""Saves model and optimizer every few steps, so as not to lose anything."""
# planted: checkpoint-heavy
# profile: --steps 100

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x, y = torch.randn(20_000, 100), torch.randn(20_000, 20)
loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
model = nn.Sequential(nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 500), nn.ReLU(), nn.Linear(500, 20))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

step = 0
for epoch in range(20):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 2 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, f"checkpoint_{step % 3}.pt")  # <- here
