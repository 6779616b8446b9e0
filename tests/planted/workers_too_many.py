"""A table that fits into memory many times over, fed through six worker processes."""
# planted: workers-too-many
# profile: --steps 400

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = torch.randn(50_000, 64)
labels = (rows[:, :8].sum(1) > 0).long()

loader = DataLoader(  # <- here
    TensorDataset(rows, labels),
    batch_size=64,
    shuffle=True,
    num_workers=6,
    persistent_workers=True,
    prefetch_factor=4,
)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(10):
    correct = 0
    for x, y in loader:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == y).sum()
    print(f"epoch {epoch}: accuracy {correct.item() / len(rows):.3f}")
