"""Collects garbage by hand in every step, beside a large catalogue of Python objects."""
# planted: gc-pauses
# profile: --steps 25

import gc
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

random.seed(0)
catalogue = {f"item-{number}": {"tags": [number % 7], "price": [random.random()]} for number in range(12_000)}

prices = torch.tensor([entry["price"][0] for entry in catalogue.values()])
features = torch.randn(len(catalogue), 48)
loader = DataLoader(TensorDataset(features, prices), batch_size=256, shuffle=True)
model = nn.Sequential(nn.Linear(48, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

for epoch in range(10):
    for x, price in loader:
        loss = nn.functional.l1_loss(model(x).squeeze(1), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del x, price
        gc.collect()  # <- here
