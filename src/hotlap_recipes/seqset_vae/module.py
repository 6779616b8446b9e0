"""What Lightning trains: the auto-encoder (`pretrain`), and a classifier on its frozen latents (`finetune`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.nn import functional

from hotlap_recipes.seqset_vae.data import Batch
from hotlap_recipes.seqset_vae.model import SIZES, SeqSetVAE


@dataclass(frozen=True)
class Objective:
    """`beta` weighs the KL divergence and is reached after `warmup` steps, from zero; nats of each dimension below
    `free_bits` cost nothing, which keeps dimensions open that have not found a use yet."""

    beta: float = 1.0
    warmup: int = 200
    free_bits: float = 0.03
    lr: float = 1e-3

    def weight(self, step: int) -> float:
        return self.beta * min(1.0, (step + 1) / self.warmup) if self.warmup else self.beta


class Pretraining(lightning.LightningModule):
    """`training_step` returns the posterior too, and how to decode other latents: a monitor may look at both."""

    def __init__(self, embedding: int, size: str, objective: Objective) -> None:
        super().__init__()
        self.save_hyperparameters({"embedding": embedding, "size": size})
        self.objective = objective
        self.model = SeqSetVAE(embedding, SIZES[size])

    def training_step(self, batch: Batch, _: int) -> dict[str, Any]:
        inputs = inputs_of(batch)
        posterior, reconstruction = self.model(**inputs)
        divergence = posterior.divergence()
        weight = self.objective.weight(self.global_step)
        loss = reconstruction.mean() + weight * divergence.clamp(min=self.objective.free_bits).sum()
        rows = len(reconstruction)
        self.log_dict(
            {"train/loss": loss, "train/kl": divergence.sum(), "train/beta": weight}, batch_size=rows
        )
        decode = partial(self.model.reconstruction, **inputs)
        return {"loss": loss, "mu": posterior.mu, "logvar": posterior.logvar, "decode": decode}

    def validation_step(self, batch: Batch, _: int) -> None:
        """Reconstruction from the mean, and KL: the same figure at every weight, and no random number is drawn."""
        inputs = inputs_of(batch)
        posterior = self.model.encoder(**inputs)
        loss = self.model.reconstruction(posterior.mu, **inputs).mean() + posterior.divergence().sum()
        self.log("valid/loss", loss, batch_size=len(posterior.mu), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.objective.lr, weight_decay=0.01)


class Finetuning(lightning.LightningModule):
    """Predicts the outcome from the posterior's mean. The encoder stays as it was pretrained."""

    def __init__(self, pretrained: Pretraining, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters(dict(pretrained.hparams))
        self.lr = lr
        self.model = pretrained.model.requires_grad_(False)
        self.head = nn.Linear(SIZES[pretrained.hparams["size"]].latent, 1)

    def training_step(self, batch: Batch, _: int) -> Tensor:
        loss = functional.binary_cross_entropy_with_logits(self(batch), batch["outcome"])
        self.log("train/loss", loss, batch_size=len(batch["outcome"]))
        return loss

    def validation_step(self, batch: Batch, _: int) -> None:
        logits, rows = self(batch), len(batch["outcome"])
        loss = functional.binary_cross_entropy_with_logits(logits, batch["outcome"])
        right = ((logits > 0) == (batch["outcome"] > 0.5)).float().mean()
        self.log_dict({"valid/loss": loss, "valid/accuracy": right}, batch_size=rows, sync_dist=True)

    def forward(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            mu = self.model.encoder(**inputs_of(batch)).mu
        logits: Tensor = self.head(mu).squeeze(-1).float()
        return logits

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.head.parameters(), lr=self.lr, weight_decay=0.01)


def inputs_of(batch: Batch) -> Batch:
    return {name: batch[name] for name in ("events", "present", "minutes")}
