"""Keeps every reconstruction for a picture at the end, and with each of them the graph behind it."""
# planted: memory-growth
# profile: --steps 320

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2)
        )
        self.up = nn.Sequential(
            nn.ConvTranspose2d(16, 12, 4, stride=2), nn.ReLU(), nn.ConvTranspose2d(12, 1, 2, stride=2)
        )

    def forward(self, images):
        return self.up(self.down(images))


images = torch.rand(9600, 1, 32, 32)
loader = DataLoader(TensorDataset(images), batch_size=160, shuffle=True)
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
reconstructions = []

for epoch in range(20):
    for (batch,) in loader:
        output = model(batch)
        loss = nn.functional.mse_loss(output, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reconstructions.append(output)
    print(f"epoch {epoch}: {loss.item():.3f}")
