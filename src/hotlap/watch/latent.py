"""What a batch of posteriors says, on their own device: divergence, active units, mutual information, use of z.

A posterior is a normal distribution with a diagonal covariance, given by `mu` and `logvar` of shape (rows, dimensions).
Nothing here draws from the script's random number generators, and nothing waits for a device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

Decode = Callable[[Tensor], Tensor]


def as_rows(tensor: Tensor) -> Tensor:
    """(rows, dimensions) in 32 bits, whatever stands before the last dimension."""
    return tensor.detach().reshape(-1, tensor.shape[-1]).float()


@torch.no_grad()
def figures(mu: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """One flat tensor, so that a device is asked once: KL per dimension, variance of means, mutual information."""
    divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).mean(0)
    return torch.cat([divergence, mu.var(0), mutual_information(mu, logvar, noise).reshape(1)])


@torch.no_grad()
def mutual_information(mu: Tensor, logvar: Tensor, noise: Tensor) -> Tensor:
    """Nats that z holds about which row it came from, at most ln(rows): E[log q(z|x) - log mean_j q(z|x_j)].

    The squared distances of all pairs are two matrix products. They lose digits where posteriors are narrow; there
    all pairs but a row with itself are far apart and count for nothing, and a row with itself is computed directly.
    """
    rows = mu.shape[0]
    centred = mu - mu.mean(0)
    z = centred + (0.5 * logvar).exp() * noise
    precision = (-logvar).exp()
    pairs = z.square() @ precision.T - 2.0 * (z @ (centred * precision).T)
    pairs = -0.5 * (pairs + (centred.square() * precision + logvar).sum(1))
    own = -0.5 * (noise.square() + logvar).sum(1)
    pairs.diagonal().copy_(own)
    return (own - torch.logsumexp(pairs, 1) + math.log(rows)).mean().clamp(0.0, math.log(rows))


@torch.no_grad()
def shuffled_gap(decode: Decode, mu: Tensor, generator: torch.Generator) -> Tensor | None:
    """(reconstruction loss, how much it grows when each row gets the z of another); None where rows are too few.

    Every row gets another row's z, so that even four rows show whether the decoder looks at it.
    """
    count = mu.shape[0]
    if count < 2:
        return None
    order = torch.randperm(count, generator=generator, device=generator.device).to(mu.device)
    source = torch.empty_like(order)
    source[order] = order.roll(1)
    with unseen_by_generators(mu.device):
        own = decode(mu).detach().float().mean()
        other = decode(mu[source]).detach().float().mean()
    return torch.stack([own, other - own])


@contextlib.contextmanager
def unseen_by_generators(device: torch.device) -> Iterator[None]:
    """What is drawn inside (dropout, say) leaves the script's random numbers as they were."""
    devices: list[Any] = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextlib.contextmanager
def evaluating(module: nn.Module | None) -> Iterator[None]:
    """In eval mode, so that no batch norm learns from a look; afterwards each part is as it was."""
    training = [each for each in module.modules() if each.training] if module is not None else []
    try:
        for each in training:
            each.training = False
        yield
    finally:
        for each in training:
            each.training = True
