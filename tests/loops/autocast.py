"""Mixed precision: bfloat16 autocast without a scaler, or float16 with one (`--scaler`)."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--scaler", action="store_true")
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.float16 if args.scaler else torch.bfloat16
loader = DataLoader(
    TensorDataset(torch.randn(1024, 256), torch.randint(0, 10, (1024,))), batch_size=128, shuffle=True
)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device, enabled=args.scaler)

step = 0
while step < args.steps:
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=dtype):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        step += 1
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if step == args.steps:
            break

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
