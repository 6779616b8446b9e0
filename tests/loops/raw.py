"""A plain loop as most people write it: loader, model, validation, TensorBoard, checkpoints."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

inputs, targets = torch.randn(2048, 256), torch.randint(0, 10, (2048,))
train_loader = DataLoader(TensorDataset(inputs[:1536], targets[:1536]), batch_size=128, shuffle=True)
valid_loader = DataLoader(TensorDataset(inputs[1536:], targets[1536:]), batch_size=256)

model = nn.Sequential(
    nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
criterion = nn.CrossEntropyLoss()
writer = SummaryWriter("tensorboard")


@torch.no_grad()
def validate():
    model.eval()
    correct = 0
    for x, y in valid_loader:
        correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    model.train()
    return correct / len(valid_loader.dataset)


step = 0
while step < args.steps:
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 5 == 0:
            writer.add_scalar("loss", loss.item(), step)
        if step % 20 == 0:
            writer.add_scalar("accuracy", validate(), step)
            torch.save({"model": model.state_dict(), "step": step}, "checkpoint.pt")
        if step == args.steps:
            break
writer.close()

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
