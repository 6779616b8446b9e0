"""Points of a scan are pooled into the cells of a map by sorting them and summing over all of them."""
# planted: gather-heavy
# profile: --steps 120

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CELLS = 400


class Scans(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        count = 3000 + index * 37 % 2000  # scans differ in size
        points = torch.linspace(0, 1, count * 8).reshape(count, 8)
        return points, torch.arange(count) * 7919 % CELLS


def joined(scans):
    cells = torch.cat([cells + CELLS * number for number, (_, cells) in enumerate(scans)])
    return torch.cat([points for points, _ in scans]), cells, len(scans)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(8, 64)
        self.head = nn.Linear(64, 1)

    def forward(self, points, cells, scans):
        features = self.lift(points)
        return self.head(self.pool(features, cells, scans)).reshape(scans, CELLS)

    def pool(self, features, cells, scans):
        order = cells.argsort()
        rows, cells = features[order], cells[order]
        sums = rows.cumsum(0)  # <- here
        last = torch.cat([cells[1:] != cells[:-1], cells.new_ones(1, dtype=torch.bool)])
        sums, cells = sums[last], cells[last]
        sums = torch.cat([sums[:1], sums[1:] - sums[:-1]])
        return features.new_zeros(scans * CELLS, features.shape[1]).index_copy(0, cells, sums)


model = Pooled()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Scans(), batch_size=8, shuffle=True, collate_fn=joined, drop_last=True)
for epoch in range(10):
    for points, cells, scans in loader:
        loss = model(points, cells, scans).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
