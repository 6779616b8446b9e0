"""Counts hits prediction by prediction, each of them read out of its tensor."""
# planted: element-loop
# profile: --steps 90

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(8192, 32)
y = (x[:, 0] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=512, shuffle=True)

model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(40):
    correct, seen = 0, 0
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        _, predicted = outputs.max(1)
        for k in range(len(labels)):
            if predicted[k].item() == labels[k].item():  # <- here
                correct += 1
            seen += 1
    print(f"epoch {epoch} accuracy {correct / seen:.3f}")
