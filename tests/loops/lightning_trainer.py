"""Lightning: a module, a Trainer with validation, a CSV log and checkpoints."""

import argparse
import random

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10)
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


random.seed(0), np.random.seed(0), torch.manual_seed(0)
x, y = torch.randn(2048, 256), torch.randint(0, 10, (2048,))
train_loader = DataLoader(TensorDataset(x[:1536], y[:1536]), batch_size=128, shuffle=True)
valid_loader = DataLoader(TensorDataset(x[1536:], y[1536:]), batch_size=256)
model = Classifier()
trainer = L.Trainer(
    accelerator="cpu",
    max_steps=args.steps,
    max_epochs=-1,
    val_check_interval=20,
    check_val_every_n_epoch=None,
    log_every_n_steps=5,
    logger=CSVLogger("logs"),
    callbacks=[ModelCheckpoint("checkpoints", monitor="val_accuracy", mode="max", save_last=True)],
)
trainer.fit(model, train_loader, valid_loader)

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
