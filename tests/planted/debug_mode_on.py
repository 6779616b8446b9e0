"""A denoising autoencoder in which anomaly detection was left on after a hunt for a NaN."""
# planted: debug-mode-on
# profile: --steps 90

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.autograd.set_detect_anomaly(True)  # <- here


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 256), nn.ELU(), nn.Linear(256, 64), nn.ELU())
        self.decode = nn.Sequential(nn.Linear(64, 256), nn.ELU(), nn.Linear(256, 784), nn.Sigmoid())

    def forward(self, x):
        return self.decode(self.encode(x))


digits = torch.rand(10_000, 784)
loader = DataLoader(TensorDataset(digits), batch_size=100, shuffle=True)
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(5):
    for (clean,) in loader:
        noisy = clean + 0.1 * torch.randn_like(clean)
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
