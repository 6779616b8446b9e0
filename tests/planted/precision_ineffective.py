"""A segmentation network under autocast, on a processor that has no units for bfloat16."""
# planted: precision-ineffective
# profile: --steps 15
# needs: a CPU without bf16

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Segmenter(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.middle = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, 2, 3, padding=1))

    def forward(self, images):  # <- here
        return self.up(self.middle(self.down(images)))


images, masks = torch.randn(256, 1, 48, 48), torch.randint(0, 2, (256, 48, 48))
loader = DataLoader(TensorDataset(images, masks), batch_size=8, shuffle=True)
model = Segmenter()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(10):
    for batch, target in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
