"""A small variational autoencoder on data with known factors, whose posterior can be made to collapse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

FACTORS, INPUTS = 4, 32
BETA = 40.0  # at which nothing is left in the latent


@dataclass(frozen=True)
class Kind:
    """A way to train: the weight of the KL by the share of the run that is over, and whether z starts silent."""

    name: str
    beta: Callable[[float], float]
    collapses: bool
    silent: bool = False


KINDS = (
    Kind("healthy", lambda share: min(1.0, 4 * share), collapses=False),
    Kind("provoked", lambda _: BETA, collapses=True),
    Kind("slowly collapsing", lambda share: BETA * share**2, collapses=True),
    Kind("flat from the start", lambda _: BETA, collapses=True, silent=True),
)


class Vae(nn.Module):
    def __init__(self, width: int = 64, latent: int = 16, inputs: int = INPUTS) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, inputs))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mu, logvar = self.encoder(x).chunk(2, -1)
        return mu, logvar

    def loss_of(self, z: Tensor, x: Tensor) -> Tensor:
        """For each row."""
        return (self.decoder(z) - x).square().sum(-1)


def rows(count: int, inputs: int = INPUTS) -> Tensor:
    """A curved surface of few factors in many dimensions, with a little noise."""
    factors = torch.randn(count, FACTORS)
    curved = torch.tanh(factors @ torch.randn(FACTORS, 64)) @ torch.randn(64, inputs) / 8
    return curved + 0.1 * torch.randn(count, inputs)


def training(
    kind: Kind, seed: int, steps: int, batch: int = 128
) -> Iterator[tuple[Tensor, Tensor, Callable[..., Tensor]]]:
    """After each step: the posterior of its batch, and the decoder's loss on that batch from any latents."""
    torch.manual_seed(seed)
    data = rows(4096)
    model = Vae()
    if kind.silent:
        nn.init.zeros_(model.encoder[-1].weight)
        nn.init.zeros_(model.encoder[-1].bias)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(steps):
        x = data[torch.randint(len(data), (batch,))]
        mu, logvar = model.encode(x)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).sum(-1)
        loss = (model.loss_of(z, x) + kind.beta(step / steps) * divergence).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield mu.detach(), logvar.detach(), lambda latents, x=x: model.loss_of(latents, x)
