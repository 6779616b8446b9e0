"""A GAN: two models, two optimizers, each stepped once per batch."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.rand(1024, 256)), batch_size=128, shuffle=True, drop_last=True)
generator = nn.Sequential(nn.Linear(64, 512), nn.LeakyReLU(0.2), nn.Linear(512, 256), nn.Sigmoid())
discriminator = nn.Sequential(
    nn.Linear(256, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)
)
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

step = 0
while step < args.steps:
    for (real,) in loader:
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = generator(torch.randn(len(real), 64))

        d_optimizer.zero_grad()
        d_loss = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)
        d_loss.backward()
        d_optimizer.step()

        g_optimizer.zero_grad()
        g_loss = bce(discriminator(fake), ones)
        g_loss.backward()
        g_optimizer.step()

        step += 1
        if step % 20 == 0:
            print(f"step {step}: d {d_loss.item():.3f}, g {g_loss.item():.3f}")
        if step == args.steps:
            break

if args.dump:
    params = {"generator": generator.state_dict(), "discriminator": discriminator.state_dict()}
    state = {"params": params, "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
