"""Looks at the whole validation set after every tenth step."""
# planted: validation-heavy
# profile: --steps 100

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12_000, 1, 28, 28)
y = torch.randint(0, 10, (12_000,))
train = DataLoader(TensorDataset(x[:9000], y[:9000]), batch_size=64, shuffle=True)
valid = DataLoader(TensorDataset(x[9000:], y[9000:]), batch_size=250)

model = nn.Sequential(
    nn.Conv2d(1, 32, 5, stride=2),
    nn.ReLU(),
    nn.Conv2d(32, 32, 5, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def evaluate():
    model.eval()
    losses = []
    with torch.no_grad():
        for images, labels in valid:
            losses.append(nn.functional.cross_entropy(model(images), labels))
    model.train()
    return torch.stack(losses).mean().item()


best, step = float("inf"), 0
for epoch in range(10):
    for images, labels in train:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            best = min(best, evaluate())  # <- here
