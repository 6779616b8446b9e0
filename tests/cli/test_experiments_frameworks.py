"""Experiments on trainers of frameworks: what these compute for themselves goes on, what they would keep is held
back."""

from __future__ import annotations

import csv
from pathlib import Path

from hotlap.facts import codec
from hotlap.facts.experiment import Experiments

from .conftest import in_own_process

LOOPS = Path(__file__).parents[1] / "loops"
VALIDATES_EVERY = 400  # steps: after the window, and while experiments run

STOPPER = f"""
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def training_step(self, batch, _):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.layer(batch[0]).pow(2).mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            os.close(os.open("validated", os.O_CREAT | os.O_WRONLY))  # what open() writes is held back

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)

rows = DataLoader(TensorDataset(torch.randn(100_000, 64)), batch_size=4, num_workers=0)
few = DataLoader(TensorDataset(torch.randn(16, 64)), batch_size=4, num_workers=0)
trainer = L.Trainer(
    max_steps=1_000_000, val_check_interval={VALIDATES_EVERY}, accelerator="cpu",
    callbacks=[EarlyStopping("val_loss", patience=1_000_000)], log_every_n_steps=1, enable_progress_bar=False,
    enable_checkpointing=False, logger=CSVLogger(".", name="log", version=0, flush_logs_every_n_steps=1),
)
trainer.fit(Net(), rows, few)
"""


def tried(folder: Path, *script: str) -> Experiments:
    words = (
        "profile",
        "--steps",
        "10",
        "--experiments",
        "15s",
        "--out",
        "run",
        "--json",
        "out.json",
        *script,
    )
    done = in_own_process(*words, folder=folder)
    assert done.returncode == 0, done.stderr
    return codec.read_json(folder / "run" / "experiments.json", Experiments)


def test_the_trainer_of_hugging_face_goes_on_under_experiments(tmp_path: Path) -> None:
    found = tried(tmp_path, str(LOOPS / "hf_trainer.py"), "--steps", "1000000")
    assert "failed" not in found.ended
    assert found.measured
    steps = max(
        int(path.name.rpartition("-")[2]) for path in [*(tmp_path / "out").glob("checkpoint-*"), Path("-0")]
    )
    assert steps < 100  # those of the window


def test_a_lightning_callback_finds_the_metric_that_it_stops_by(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STOPPER, encoding="utf-8")
    found = tried(tmp_path, "train.py")
    assert "failed" not in found.ended
    assert found.measured
    assert (tmp_path / "validated").exists()
    with (tmp_path / "log" / "version_0" / "metrics.csv").open(encoding="utf-8") as file:
        logged = [int(row["step"]) for row in csv.DictReader(file)]
    assert 0 < max(logged) < VALIDATES_EVERY
