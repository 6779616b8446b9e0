"""Waveforms prepared by one worker beside a network that takes longer than it does."""
# planted: healthy
# profile: --steps 20

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    def __init__(self, count=2000):
        self.waves = np.random.default_rng(0).integers(-9000, 9000, (count, 4000), dtype=np.int16)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        wave = self.waves[index].astype(np.float32) / 32768
        return np.roll(wave, np.random.randint(-100, 100)), index % 12


class SpeechNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, width, 80, stride=8),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 9, padding=4),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(width, 2 * width, 9, padding=4),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, 12)

    def forward(self, waves):
        return self.head(self.layers(waves[:, None]).mean(-1))


if __name__ == "__main__":
    loader = DataLoader(Words(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    model = SpeechNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for waves, labels in loader:
            loss = nn.functional.cross_entropy(model(waves), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), "speech.pt")
