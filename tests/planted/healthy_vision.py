"""Small pictures held as bytes, cut and flipped by the batch: the network is what takes the time."""
# planted: healthy
# profile: --steps 20

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count=5000):
        self.pixels = torch.randint(0, 255, (count, 3, 36, 36), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (count,))

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        picked = torch.tensor(indices)
        top, left = torch.randint(0, 5, (2,)).tolist()
        pictures = self.pixels[picked, :, top : top + 32, left : left + 32].float().div_(127.5).sub_(1)
        return pictures.flip(-1) if torch.rand(()) < 0.5 else pictures, self.labels[picked]


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


loader = DataLoader(Pictures(), batch_size=64, shuffle=True, collate_fn=lambda batch: batch)
model = nn.Sequential(block(3, 32), block(32, 64), block(64, 64), nn.Flatten(), nn.Linear(64 * 16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10 * len(loader))

for epoch in range(10):
    total = torch.zeros(())
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach()
    print(f"epoch {epoch}: loss {total.item() / len(loader):.3f}")
