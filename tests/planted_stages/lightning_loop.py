"""A Lightning Trainer with a delay of known size in one stage, written to planted.json as it really was."""

import argparse
import contextlib
import json
import time
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--stage", required=True, help="one, or several with commas; `none` plants nothing")
parser.add_argument("--ms", type=float, default=20.0)
parser.add_argument("--every", type=int, default=1, help="steps between two delays")
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
planted = {stage: [] for stage in args.stage.split(",")}
inside = 0.0
clock = {}  # milliseconds by stage and step, as the script's own stopwatch says


@contextlib.contextmanager
def stopwatch(stage, step):
    """One inside another stops the outer one."""
    global inside
    started, outer, inside = time.perf_counter(), inside, 0.0
    yield
    spent = time.perf_counter() - started
    steps = clock.setdefault(stage, {})
    steps[step] = steps.get(step, 0.0) + (spent - inside) * 1e3
    inside = outer + spent


def delay(stage, step):
    if stage in planted and step % args.every == 0:
        started = time.perf_counter()
        time.sleep(args.ms / 1000)
        planted[stage].append(time.perf_counter() - started)


class SlowLog(CSVLogger):
    def log_metrics(self, metrics, step=None):
        with stopwatch("log", trainer.global_step):
            if "loss" in metrics:
                delay("log", trainer.global_step)
            super().log_metrics(metrics, step)

    def save(self):
        with stopwatch("log", trainer.global_step):
            super().save()


class SlowCallback(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        with stopwatch("other", trainer.global_step):
            delay("other", trainer.global_step)

    def on_validation_start(self, trainer, module):
        self.validation = stopwatch("validate", trainer.global_step)
        self.validation.__enter__()

    def on_validation_end(self, trainer, module):
        self.validation.__exit__(None, None, None)


class TimedCheckpoint(ModelCheckpoint):
    def _save_topk_checkpoint(self, trainer, candidates):
        with stopwatch("checkpoint", trainer.global_step):
            super()._save_topk_checkpoint(trainer, candidates)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))

    def training_step(self, batch, batch_idx):
        with stopwatch("forward", self.global_step):
            delay("forward", self.global_step)
            loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def log(self, *args):
        with stopwatch("log", self.global_step):
            super().log(*args)

    def validation_step(self, batch, batch_idx):
        if batch_idx == 0:
            delay("validate", self.global_step)
        self.log("accuracy", (self.layers(batch[0]).argmax(1) == batch[1]).float().mean())

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        if not self.trainer.training:
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        with stopwatch("transfer", self.global_step):
            delay("transfer", self.global_step)
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def on_save_checkpoint(self, checkpoint):
        delay("checkpoint", self.global_step)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


torch.manual_seed(0)
data = TensorDataset(torch.randn(64 * args.steps, 256), torch.randint(0, 10, (64 * args.steps,)))
loader = DataLoader(data, batch_size=64)
trainer = L.Trainer(
    accelerator="cpu",
    max_steps=args.steps,
    val_check_interval=1,
    limit_val_batches=2,
    log_every_n_steps=1,
    logger=SlowLog("logs"),
    callbacks=[SlowCallback(), TimedCheckpoint("checkpoints", every_n_train_steps=1)],
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Net(), loader, loader)
Path("planted.json").write_text(json.dumps({"steps": args.steps, "seconds": planted, "clock": clock}))
