"""Scans on a slow mount, unpacked again and again although all of them would fit into memory."""
# planted: repeated-work
# profile: --steps 70

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

folder = Path("scans")
folder.mkdir(exist_ok=True)
rng = np.random.default_rng(0)
for number in range(40):
    scan = np.cumsum(rng.normal(size=(24, 48, 48)), axis=0).round(1).astype(np.float32)
    np.savez_compressed(folder / f"scan{number:03}.npz", scan=scan, label=number % 3)


class Scans(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.npz"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):  # <- here
        time.sleep(0.005)  # the mount
        with np.load(self.files[index]) as file:
            scan = torch.from_numpy(file["scan"])
            return (scan - scan.mean()) / scan.std(), int(file["label"])


loader = DataLoader(Scans(folder), batch_size=5, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(24, 16, 3, stride=4), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)
)
model(torch.zeros(1, 24, 48, 48))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(100):
    for scans, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(scans), labels)
        loss.backward()
        optimizer.step()
