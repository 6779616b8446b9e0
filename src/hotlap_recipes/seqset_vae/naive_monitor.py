"""A collapse monitor as it is often written: every 20 steps, all pairs at once, and a picture each time.

It is here to be measured. It calls a posterior collapsed where KL has a falling trend below a bound, and it takes the
time that it takes. `hotlap.watch` is what to use.
"""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor

EVERY = 20
FALL = -0.02  # share of the mean KL that it loses at each look
SMALL_KL = 0.5  # nats


class NaiveMonitor(lightning.Callback):
    """Keeps the last 64 batches of posteriors."""

    def __init__(self) -> None:
        self.batches: deque[tuple[Tensor, Tensor]] = deque(maxlen=64)
        self.steps: list[int] = []
        self.figures: dict[str, list[float]] = {"KL": [], "active units": [], "mutual information": []}
        self.collapsed_at: int | None = None

    def on_train_batch_end(
        self, trainer: lightning.Trainer, _: Any, outputs: Any, __: Any, index: int
    ) -> None:
        self.batches.append((outputs["mu"].detach().cpu(), outputs["logvar"].detach().cpu()))
        if index % EVERY == 0 and trainer.is_global_zero:
            self.look(trainer.global_step)
            self.plot(Path(trainer.log_dir or trainer.default_root_dir) / "monitor")

    def look(self, step: int) -> None:
        mu, logvar = (torch.cat(part) for part in zip(*self.batches, strict=True))
        divergence = 0.5 * (mu.square() + logvar.exp() - 1.0 - logvar).mean(0)
        self.steps.append(step)
        self.figures["KL"].append(float(divergence.sum()))
        self.figures["active units"].append(float((mu.var(0) > 0.01).sum()) if len(mu) > 1 else 0.0)
        self.figures["mutual information"].append(pairwise_information(mu, logvar))
        if self.collapsed_at is None and falls(self.figures["KL"]):
            self.collapsed_at = step

    def plot(self, folder: Path) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(1, len(self.figures), figsize=(15, 4))
        for axis, (name, values) in zip(axes, self.figures.items(), strict=True):
            axis.plot(self.steps, values)
            axis.set_title(name)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"step_{self.steps[-1]:06d}.png", dpi=120)
        pyplot.close(figure)


def pairwise_information(mu: Tensor, logvar: Tensor) -> float:
    """Each draw under each posterior: a tensor of rows x rows x dimensions."""
    noise = torch.randn(mu.shape, generator=torch.Generator().manual_seed(0))
    z = mu + (0.5 * logvar).exp() * noise
    squares = (z[:, None] - mu[None]).square() / logvar.exp()[None]
    pairs = -0.5 * (squares + logvar[None]).sum(-1)
    return float((pairs.diagonal() - pairs.logsumexp(1) + math.log(len(mu))).mean())


def falls(values: list[float], window: int = 10, least: float = 0.0) -> bool:
    """A falling trend over the last looks, by at least so many nats at each, down to a low level."""
    if len(values) < window:
        return False
    recent = torch.tensor(values[-window:])
    time = torch.arange(window) - (window - 1) / 2
    slope = float((time * recent).sum() / time.square().sum())
    return slope < min(-least, FALL * float(recent.mean())) and values[-1] < SMALL_KL
