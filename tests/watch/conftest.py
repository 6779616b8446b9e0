"""A small variational autoencoder, trained for real, whose posterior can be made to collapse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn


class Vae(nn.Module):
    def __init__(self, inputs: int = 16, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, inputs))

    def losses(self, x):
        mu, logvar = self.encoder(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).sum(-1)
        return mu, logvar, self.rebuilt(z, x), divergence

    def rebuilt(self, z, x):
        return (self.decoder(z) - x).square().sum(-1)


@pytest.fixture
def vae() -> Callable[..., Vae]:
    """A new one, with a seed; `silent` ones start with a posterior that is the prior."""

    def make(seed: int = 0, silent: bool = False) -> Vae:
        torch.manual_seed(seed)
        model = Vae()
        if silent:
            nn.init.zeros_(model.encoder[-1].weight)
            nn.init.zeros_(model.encoder[-1].bias)
        return model

    return make


@pytest.fixture
def factors() -> torch.Tensor:
    """Rows of 16 numbers that three factors make."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(2048, 3, generator=generator)
    mixed = torch.tanh(hidden @ torch.randn(3, 24, generator=generator))
    return mixed @ torch.randn(24, 16, generator=generator) / 3


@pytest.fixture
def train_vae(vae, factors) -> Callable[..., Any]:
    """Trains one with a KL weight that depends on the share of the run, and shows each step to a monitor."""

    def run(monitor, beta, steps=500, seed=0, silent=False, batch=64):
        model = vae(seed, silent)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        told = []
        for step in range(steps):
            x = factors[torch.randint(len(factors), (batch,))]
            mu, logvar, rebuilt, divergence = model.losses(x)
            loss = (rebuilt + beta(step / steps) * divergence).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if monitor is not None:
                told.append(monitor.update(mu, logvar, decode=lambda z, x=x: model.rebuilt(z, x)).state)
        return model, told

    return run
