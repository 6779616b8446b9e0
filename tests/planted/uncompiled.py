"""A network of oscillators: long chains of element by element arithmetic on large tensors, and hardly a matmul."""
# planted: uncompiled
# profile: --steps 30

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Oscillators(nn.Module):
    def __init__(self, count=256):
        super().__init__()
        self.frequency = nn.Parameter(torch.rand(count))
        self.damping = nn.Parameter(torch.rand(count))
        self.coupling = nn.Parameter(torch.rand(count) * 0.1)
        self.read = nn.Linear(count, 1)

    def forward(self, position):  # <- here
        velocity = torch.zeros_like(position)
        for _ in range(8):
            force = -self.frequency * torch.sin(position) - self.damping * velocity
            force = force + self.coupling * torch.tanh(position.roll(1, -1) - position)
            velocity = velocity + 0.05 * force
            position = position + 0.05 * velocity
        return self.read(torch.cos(position)).squeeze(-1)


starts = torch.randn(8192, 256)
energy = starts.square().mean(-1)
loader = DataLoader(TensorDataset(starts, energy), batch_size=512, shuffle=True, drop_last=True)
model = Oscillators()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(20):
    for batch, target in loader:
        loss = nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
