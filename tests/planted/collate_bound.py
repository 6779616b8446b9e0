"""Reviews of unlike length, put into one padded batch token by token."""
# planted: collate-bound
# profile: --steps 90

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)


class Reviews(Dataset):
    def __init__(self, count=4000):
        self.rows = [
            [random.randrange(1, 2000) for _ in range(random.randint(90, 110))] for _ in range(count)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 2


def pad(items):
    longest = max(len(row) for row, _ in items)
    batch = torch.zeros(len(items), longest, dtype=torch.long)
    for i, (row, _) in enumerate(items):
        for j, token in enumerate(row):
            batch[i, j] = token  # <- here
    return batch, torch.tensor([label for _, label in items])


loader = DataLoader(Reviews(), batch_size=32, shuffle=True, collate_fn=pad)
model = nn.Sequential(nn.EmbeddingBag(2000, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(30):
    for tokens, labels in loader:
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
