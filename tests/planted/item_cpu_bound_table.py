"""Sensor rows, scaled one by one with the scaler that was fitted on the training set."""
# planted: item-cpu-bound
# profile: --steps 80

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(7)
features = rng.normal(5.0, 3.0, (6000, 40))
target = features[:, :3].sum(axis=1) + rng.normal(0, 0.1, 6000)


class SensorRows(Dataset):
    def __init__(self, features, target):
        self.features = features
        self.target = target
        self.scaler = StandardScaler().fit(features)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        row = self.scaler.transform(self.features[index : index + 1024])[0]  # <- here
        return torch.tensor(row, dtype=torch.float32), torch.tensor(self.target[index], dtype=torch.float32)


loader = DataLoader(SensorRows(features, target), batch_size=128, shuffle=True)
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()

for epoch in range(50):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
