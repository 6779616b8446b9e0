"""House prices straight from NumPy: the arrays are float64, so the model was made double as well."""
# planted: float64-compute
# profile: --steps 60

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(11)
houses = rng.normal(size=(20_000, 80))
prices = houses @ rng.normal(size=80) + rng.normal(size=20_000)


class PriceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(80, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
        )

    def forward(self, x):  # <- here
        return self.layers(x).squeeze(-1)


loader = DataLoader(
    TensorDataset(torch.from_numpy(houses), torch.from_numpy(prices)), batch_size=250, shuffle=True
)
model = PriceModel().double()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

for epoch in range(10):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
