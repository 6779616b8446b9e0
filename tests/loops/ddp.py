"""Distributed data parallel on the CPU: start it with `torchrun --nproc_per_node 2 ddp.py`."""

import argparse
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

dist.init_process_group("gloo")
random.seed(0), np.random.seed(0), torch.manual_seed(0)
data = TensorDataset(torch.randn(1024, 256), torch.randint(0, 10, (1024,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=64, sampler=sampler)
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

step = epoch = 0
while step < args.steps:
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if step == args.steps:
            break
    epoch += 1

if args.dump:
    state = {"params": net.state_dict(), "rng": torch.get_rng_state()}
    state |= {"python": random.getstate(), "numpy": np.random.get_state()}
    torch.save(state, f"{args.dump}.{dist.get_rank()}")
dist.destroy_process_group()
