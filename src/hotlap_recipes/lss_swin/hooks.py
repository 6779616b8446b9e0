"""What the Runner does beside training: count samples by a stopwatch, and go on with the same random numbers."""

from __future__ import annotations

import time
from typing import Any

import torch
from mmengine.hooks import Hook


class Throughput(Hook):  # type: ignore[misc]
    """Says at the end how many samples were trained in which time, validation included and apart.

    The clock starts when the first iteration ends: what was before is start-up.
    """

    priority = "VERY_LOW"

    def __init__(self) -> None:
        self.samples = 0
        self.iterations = 0
        self.validation = 0.0
        self.began: float | None = None
        self.validating = 0.0

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        if self.began is None:
            self.began = time.perf_counter()
            return
        self.samples += len(data_batch["images"])
        self.iterations += 1

    def before_val(self, runner: Any) -> None:
        self.validating = time.perf_counter()

    def after_val(self, runner: Any) -> None:
        if self.began is not None:
            self.validation += time.perf_counter() - max(self.validating, self.began)

    def after_train(self, runner: Any) -> None:
        if self.began is None or not self.samples:
            return
        seconds = time.perf_counter() - self.began
        runner.logger.info(
            f"trained {self.samples} samples in {seconds:.1f} s, {self.samples / seconds:.2f} samples/s "
            f"({self.iterations / seconds:.3f} iterations/s), of it {self.validation:.1f} s in validation"
        )


class RandomState(Hook):  # type: ignore[misc]
    """A run that is resumed draws the random numbers that it would have drawn: those of the network's drop path."""

    def __init__(self) -> None:
        self.resumed: torch.Tensor | None = None

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["random_state"] = torch.get_rng_state()

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        self.resumed = checkpoint.get("random_state") if runner._resume else None

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if self.resumed is not None:
            torch.set_rng_state(self.resumed.cpu())
            self.resumed = None
