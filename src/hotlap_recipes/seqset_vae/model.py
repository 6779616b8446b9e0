"""The network: events to sets to a sequence to one latent vector, and back to the sets.

B sequences, S sets, E events of a set, D numbers of an embedding. What is padding is told by `present` (B, S, E); it
never changes a result, so a batch may be padded to any length. The only random numbers are those of the latent, one
row for each sequence: however a batch is padded, the same ones are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

DAY = 1440.0
PRECISION = 400.0
"""The weight of a squared error, 1 / variance: with it, factors that explain a quarter of the variance are worth their
KL at beta 1, and are not at beta 40."""


@dataclass(frozen=True)
class Size:
    """`points` are the inducing points of set attention, `seeds` the events that the decoder gives for each set."""

    width: int
    latent: int
    points: int
    layers: int
    heads: int
    seeds: int = 4


SIZES = {"tiny": Size(32, 16, 4, 1, 2), "small": Size(64, 32, 8, 2, 4), "base": Size(256, 256, 16, 4, 8)}


class Posterior(NamedTuple):
    """A normal distribution for each row, with a diagonal covariance."""

    mu: Tensor
    logvar: Tensor

    def draw(self) -> Tensor:
        return self.mu + (0.5 * self.logvar).exp() * torch.randn_like(self.mu)

    def divergence(self) -> Tensor:
        """From the standard normal distribution: mean over the rows, in nats for each dimension."""
        return 0.5 * (self.mu.square() + self.logvar.exp() - 1.0 - self.logvar).mean(0)


class Attention(nn.Module):
    """`visible` says which keys may be looked at; every query must see at least one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, queries: Tensor, keys: Tensor, visible: Tensor | None = None) -> Tensor:
        key, value = self.key_value(keys).chunk(2, -1)
        mask = None if visible is None else visible[:, None, None, :]
        query, key, value = (self._split(each) for each in (self.query(queries), key, value))
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return mixed

    def _split(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:-1], self.heads, -1).transpose(1, 2)


class InducedSetAttention(nn.Module):
    """Learned points look at the events of a set, then the events look at the points: linear in the set's size."""

    def __init__(self, width: int, heads: int, points: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(1, points, width) / math.sqrt(width))
        self.gather = Attention(width, heads)
        self.spread = Attention(width, heads)
        self.norm = nn.LayerNorm(width)

    def forward(self, events: Tensor, visible: Tensor) -> Tensor:
        """(sets, events, width) and which of them are there."""
        seen = self.gather(self.points.expand(len(events), -1, -1), events, visible)
        attended: Tensor = self.norm(events + self.spread(events, seen))
        return attended


class Block(nn.Module):
    """A transformer layer. No dropout: the noise of the latent does its work, and its masks would depend on padding."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, rows: Tensor, visible: Tensor) -> Tensor:
        normed = self.first(rows)
        rows = rows + self.attention(normed, normed, visible)
        out: Tensor = rows + self.inner(self.second(rows))
        return out


class Encoder(nn.Module):
    def __init__(self, embedding: int, size: Size) -> None:
        super().__init__()
        self.project = nn.Linear(embedding, size.width)
        self.sets = InducedSetAttention(size.width, size.heads, size.points)
        self.time = nn.Linear(TIME_FEATURES, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.posterior = nn.Linear(size.width, 2 * size.latent)

    def forward(self, events: Tensor, present: Tensor, minutes: Tensor) -> Posterior:
        there = present.any(-1)
        # A set of padding sees its first event, which is zero: attention to nothing at all has no defined result.
        visible = present | ~there[..., None]
        attended = self.sets(self.project(events).flatten(0, 1), visible.flatten(0, 1))
        rows = masked_mean(attended.reshape(*present.shape, -1), present) + self.time(time_features(minutes))
        for block in self.blocks:
            rows = block(rows, there)
        mu, logvar = self.posterior(masked_mean(self.norm(rows), there)).float().chunk(2, -1)
        return Posterior(mu, logvar.clamp(-10.0, 10.0))


class Decoder(nn.Module):
    """From the latent and the time of a set to the events that it may have held."""

    def __init__(self, embedding: int, size: Size) -> None:
        super().__init__()
        self.latent = nn.Linear(size.latent, size.width)
        self.time = nn.Linear(TIME_FEATURES, size.width)
        self.mix = nn.Sequential(nn.GELU(), nn.Linear(size.width, size.width), nn.GELU())
        self.modulate = nn.Linear(size.latent, size.width)
        self.seeds = nn.Parameter(torch.randn(size.seeds, size.width) / math.sqrt(size.width))
        self.out = nn.Linear(size.width, embedding)

    def forward(self, latent: Tensor, minutes: Tensor) -> Tensor:
        """(B, S, seeds, D)"""
        time = self.time(time_features(minutes))
        mixed = self.mix(self.latent(latent)[:, None] + time) + self.modulate(latent)[:, None] * time
        events: Tensor = self.out(mixed[:, :, None] + self.seeds)
        return events


class SeqSetVAE(nn.Module):
    def __init__(self, embedding: int, size: Size) -> None:
        super().__init__()
        self.encoder = Encoder(embedding, size)
        self.decoder = Decoder(embedding, size)

    def forward(self, events: Tensor, present: Tensor, minutes: Tensor) -> tuple[Posterior, Tensor]:
        """The posterior of each sequence, and how badly each is reconstructed from a draw of it: (B,)."""
        posterior = self.encoder(events, present, minutes)
        return posterior, self.reconstruction(posterior.draw(), events, present, minutes)

    def reconstruction(self, latent: Tensor, events: Tensor, present: Tensor, minutes: Tensor) -> Tensor:
        return chamfer(self.decoder(latent, minutes), events, present)


TIME_FEATURES = 6


def time_features(minutes: Tensor) -> Tensor:
    """The time of day, the time of half a day, the days so far: (..., 6)."""
    angle = minutes.float() * (2 * math.pi / DAY)
    waves = [torch.cos(angle), torch.sin(angle), torch.cos(2 * angle), torch.sin(2 * angle)]
    days = torch.log1p(minutes.float() / DAY)
    return torch.stack([*waves, days, days.square()], -1)


def masked_mean(values: Tensor, there: Tensor) -> Tensor:
    """Over the last dimension of `there`; zero where nothing is there."""
    weights = there.to(values.dtype)
    return (values * weights[..., None]).sum(-2) / weights.sum(-1).clamp(min=1.0)[..., None]


def chamfer(seeds: Tensor, events: Tensor, present: Tensor) -> Tensor:
    """Each event to its nearest seed and each seed to its nearest event, squared, as a mean over the sets: (B,).

    Distances are differences of large numbers: never taken in half precision.
    """
    with torch.autocast(seeds.device.type, enabled=False):
        made, seen = seeds.float(), events.float()
        products = seen @ made.transpose(-1, -2)
        squares = seen.square().sum(-1)[..., :, None] + made.square().sum(-1)[..., None, :]
        distance = (squares - 2.0 * products) / events.shape[-1]
        to_seeds = masked_mean(distance.amin(-1)[..., None], present).squeeze(-1)
        absent = torch.where(present, 0.0, torch.inf)[..., None]
        to_events = (distance + absent).amin(-2).mean(-1)
        there = present.any(-1)
        both = torch.where(there, to_seeds + to_events, 0.0)
        return 0.25 * PRECISION * both.sum(-1) / there.sum(-1).clamp(min=1)
