"""A table in memory, gathered by the batch, with large batches and the fused optimizer."""
# planted: healthy
# profile: --steps 150

import torch
from torch import nn

torch.manual_seed(0)
rows, target = torch.randn(60_000, 50), torch.rand(60_000)
model = nn.Sequential(nn.Linear(50, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
BATCH = 1000

step = 0
for epoch in range(20):
    order = torch.randperm(len(rows))
    for first in range(0, len(rows), BATCH):
        picked = order[first : first + BATCH]
        loss = nn.functional.mse_loss(model(rows[picked]).squeeze(1), target[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
