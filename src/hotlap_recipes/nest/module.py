"""NEST as a LightningModule: what a step computes and logs, the schedule, and the bad clips that it hears of."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import OmegaConf
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from hotlap_recipes.nest import BadInputError
from hotlap_recipes.nest.data import SpeechData
from hotlap_recipes.nest.dataset import IN_A_ROW, Batch
from hotlap_recipes.nest.export import read_nemo
from hotlap_recipes.nest.manifest import Fault, counted, require_few
from hotlap_recipes.nest.model import Nest

VALIDATION = 1 << 20  # apart from the seeds of training steps


@rank_zero_only
def say(text: str) -> None:
    print(text, flush=True)


class NonFiniteLossError(Exception):
    """Training cannot go on. The message names the step."""


class NestModule(lightning.LightningModule):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self._config = config
        self.nest = Nest(config.model)
        if config.init_from_nemo_model:
            self.nest.load_state_dict(read_nemo(Path(config.init_from_nemo_model)))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """`export` needs the config too. As plain values: `torch.load` reads them without running code."""
        checkpoint["nest_config"] = OmegaConf.to_container(self._config, resolve=True)

    def on_train_epoch_start(self) -> None:
        self.data.set_epoch(self.current_epoch)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """A seed for every step, so that a resumed run draws the masks and dropout that it would have drawn."""
        self._seed(self.current_epoch, batch_idx)

    def on_validation_batch_start(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """The same masks each time: losses of different epochs can be compared."""
        self._seed(VALIDATION, batch_idx)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss: Tensor = self.nest(batch.audio, batch.lengths, batch.noisy).loss
        (rate,) = {group["lr"] for group in self.trainer.optimizers[0].param_groups}
        self.log_dict({"train_loss": loss, "learning_rate": rate}, batch_size=len(batch.lengths))
        if self.global_step % self._config.trainer.log_every_n_steps == 0:  # seldom: a GPU is waited for
            self._require_finite(loss, rate)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        loss = self.nest(batch.audio, batch.lengths, batch.noisy).loss
        self.log_dict({"val_loss": loss}, prog_bar=True, batch_size=len(batch.lengths), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optim = self._config.model.optim
        learned = [parameter for parameter in self.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            learned,
            lr=optim.lr,
            betas=tuple(optim.betas),
            weight_decay=optim.weight_decay,
            fused=optim.fused or None,  # None: torch decides
        )
        warmup = optim.sched.warmup_steps
        if warmup is None:
            warmup = int((optim.sched.warmup_ratio or 0.0) * self.trainer.estimated_stepping_batches)
        schedule = Noam(optim.sched.d_model, warmup, optim.sched.min_lr / optim.lr)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, schedule), "interval": "step"},
        }

    def _require_finite(self, loss: Tensor, rate: float) -> None:
        if not loss.isfinite():
            what = f"the loss is {float(loss.detach())} at step {self.global_step}, with a learning rate of {rate:.3g}."
            raise NonFiniteLossError(f"{what}\n  -> lower model.optim.lr, or lengthen the warm-up.")

    @property
    def data(self) -> SpeechData:
        found = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(found, SpeechData)
        return found

    def _seed(self, *place: int) -> None:
        seeds = (self._config.seed, self.global_rank, *place)
        seed = sum(part * 1_000_003**power for power, part in enumerate(seeds)) % (1 << 63)
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` also looks for every kind of device
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)


class Noam:
    """Share of the given learning rate at a step: up to the warm-up's end, then down with the root of the steps."""

    def __init__(self, d_model: int, warmup: int, least: float) -> None:
        self._scale, self._warmup, self._least = d_model**-0.5, warmup, least

    def __call__(self, step: int) -> float:
        step = max(1, step)
        if step <= self._warmup:
            return float(self._scale * step * self._warmup**-1.5)
        return float(max(self._scale * step**-0.5, self._least))


class BadClips(lightning.Callback):
    """Counts the clips that could not be read, stops where they are too many, and says so in the end."""

    def __init__(self, config: Any, known: int) -> None:
        self._config, self._known = config, known
        self._faults: dict[str, Fault] = {}

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self._hear(batch, pl_module)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._hear(batch, pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self._faults:
            reasons = ", ".join(f"{count} {kind}" for kind, count in counted(self._faults.values()).items())
            say(f"clips left out while training: {reasons}")

    def _hear(self, batch: Batch, module: Any) -> None:
        for fault in batch.faults:
            if fault.kind == IN_A_ROW:
                raise BadInputError(f"{fault}.", "check that the manifest's files are there and are sounds.")
            if fault.where not in self._faults:
                self._faults[fault.where] = fault
                say(f"left out: {fault}")
        if batch.faults:
            faults = [*module.data.survey.faults, *self._faults.values()]
            require_few(faults, self._known, self._config.on_bad_clip, self._config.max_bad_share)


class Throughput(lightning.Callback):
    """Counts what was trained, and tells it in the end: clips and seconds of sound, without their padding."""

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate
        self.clips, self.padded, self.steps = 0, 0, 0
        self._samples = torch.zeros((), dtype=torch.int64)
        self._began = 0.0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.steps += 1
        self.clips += len(batch.lengths)
        self._samples = (
            self._samples.to(batch.lengths.device) + batch.lengths.sum()
        )  # a GPU is not waited for
        self.padded += batch.audio.numel()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.steps:
            seconds = time.perf_counter() - self._began
            samples = int(self._samples)
            sound = samples / self._rate
            say(
                f"trained {self.clips} clips, {sound:.0f} s of sound, in {self.steps} steps and {seconds:.1f} s: "
                f"{self.clips / seconds:.2f} clips/s, {sound / seconds:.2f} s of sound a second, "
                f"{1 - samples / self.padded:.0%} of what was computed was padding"
            )
