"""Lightning: trains under whatever plan there is, and writes down how its trainer was set and what was called."""

import json
import logging
import warnings
from collections import Counter
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning").setLevel(logging.ERROR)
calls = Counter()


class Monitor(Callback):
    """Sums over a large tensor with each batch: dearer than the training itself."""

    def on_train_batch_end(self, trainer, module, *args):
        calls["monitor"] += 1
        torch.randn(400_000, generator=torch.Generator().manual_seed(0)).sort()

    def on_train_epoch_end(self, trainer, module):
        calls["monitor epochs"] += 1


class Patient(EarlyStopping):
    """Of the user's, but it does the framework's work."""

    def on_train_batch_end(self, *args):
        calls["patient"] += 1
        super().on_train_batch_end(*args)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 1)

    def training_step(self, batch, index):
        calls["training"] += 1
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        calls["validation"] += 1
        self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
x, y = torch.randn(128, 16), torch.randn(128, 1)
trainer = L.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=2,
    accumulate_grad_batches=2,
    log_every_n_steps=1,
    logger=CSVLogger("logs"),
    callbacks=[
        Monitor(),
        Patient("val", patience=100),
        ModelCheckpoint("saved", save_top_k=-1, filename="{step}"),
    ],
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
model = Net()
trainer.fit(
    model, DataLoader(TensorDataset(x, y), 4, shuffle=False), DataLoader(TensorDataset(x[:20], y[:20]), 4)
)
rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
logged = Path("logs/lightning_logs/version_0/metrics.csv").read_text().splitlines()
Path("seen.json").write_text(
    json.dumps(
        {
            "calls": calls,
            "accumulate": trainer.accumulate_grad_batches,
            "precision": trainer.precision,
            "log_every": trainer.log_every_n_steps,
            "steps": trainer.global_step,
            "saved": sorted(each.name for each in Path("saved").iterdir()),
            "keys": sorted(torch.load(next(Path("saved").iterdir()), weights_only=False)["state_dict"]),
            "rates": rates,
            "logged": len([line for line in logged[1:] if line.split(",")[1]]),
            "signature": "accumulate_grad_batches"
            in str(__import__("inspect").signature(L.Trainer.__init__)),
        }
    )
)
