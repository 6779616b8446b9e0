"""Accelerate: a loop of one's own with prepared objects, accumulation, a tracker and saved states."""

import argparse
import random

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir="project")
accelerator.init_trackers("run")
x, y = torch.randn(2048, 256), torch.randint(0, 10, (2048,))
train_loader = DataLoader(TensorDataset(x[:1536], y[:1536]), batch_size=128, shuffle=True)
valid_loader = DataLoader(TensorDataset(x[1536:], y[1536:]), batch_size=256)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, train_loader, valid_loader = accelerator.prepare(
    model, optimizer, train_loader, valid_loader
)


def validate():
    model.eval()
    hits = []
    for x, y in valid_loader:
        with torch.no_grad():
            predictions = model(x).argmax(1)
        hits.append(accelerator.gather_for_metrics(predictions == y))
    model.train()
    return torch.cat(hits).float().mean().item()


step = 0
while step < args.steps:
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 5 == 0:
            accelerator.log({"loss": loss.item()}, step=step)
        if step % 20 == 0:
            accelerator.log({"accuracy": validate()}, step=step)
            accelerator.save_state("state")
        if step == args.steps:
            break
accelerator.end_training()

if args.dump:
    state = {"params": accelerator.unwrap_model(model).state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
