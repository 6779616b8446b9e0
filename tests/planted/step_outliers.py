"""Prices from a service that drops the connection now and then: the item is asked for again after a while."""
# planted: step-outliers
# profile: --steps 200

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(2)


class Quotes(Dataset):
    def __init__(self, count=20_000):
        self.quotes = torch.randn(count, 30)
        self.requests = 0

    def __len__(self):
        return len(self.quotes)

    def request(self, index):
        self.requests += 1
        if self.requests % 2500 == 0:
            raise ConnectionError("connection reset by peer")
        return self.quotes[index]

    def __getitem__(self, index):
        for _ in range(5):
            try:
                return self.request(index) + 0.01 * torch.randn(30)
            except ConnectionError:
                time.sleep(0.25)  # <- here
        raise ConnectionError(f"quote {index} could not be had")


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(29, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 1)
        )

    def forward(self, past):
        return self.layers(past)


loader = DataLoader(Quotes(), batch_size=50, shuffle=True)
model = Forecast()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for epoch in range(5):
    for quotes in loader:
        loss = nn.functional.mse_loss(model(quotes[:, :-1]), quotes[:, -1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
