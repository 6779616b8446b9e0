"""Gradient accumulation: four small batches to one optimizer step."""

import argparse
import logging
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()
logging.basicConfig(filename="train.log", level=logging.INFO)

random.seed(0), np.random.seed(0), torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 256), torch.randint(0, 10, (2048,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
criterion = nn.CrossEntropyLoss()
accumulate = 4


def batches():
    while True:
        yield from loader


for index, (x, y) in enumerate(batches(), start=1):
    loss = criterion(model(x), y) / accumulate
    loss.backward()
    if index % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        if index % (10 * accumulate) == 0:
            logging.info("step %d loss %.4f", index // accumulate, loss.item() * accumulate)
    if index == args.steps * accumulate:
        break

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
