"""Lightning Fabric: a loop of one's own, set up by Fabric."""

import argparse
import random

import lightning as L
import numpy as np
import torch
from lightning.fabric.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0)
fabric = L.Fabric(accelerator="cpu", devices=1, loggers=CSVLogger("logs"))
fabric.launch()
fabric.seed_everything(0, verbose=False)

x, y = torch.randn(1536, 256), torch.randint(0, 10, (1536,))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True))
net = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=1e-3))

step = 0
while step < args.steps:
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        step += 1
        if step % 5 == 0:
            fabric.log("loss", loss.item(), step)
        if step % 20 == 0:
            fabric.save("checkpoint.ckpt", {"model": model, "optimizer": optimizer, "step": step})
        if step == args.steps:
            break

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
