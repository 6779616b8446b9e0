"""Counts what a Lightning run trains, after its warm-up. The same for NeMo's batches and for ours; needs no hotlap."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning


class Meter(lightning.Callback):
    """Writes clips, seconds of sound, seconds of waiting for data and CPU time a second to $BENCH_FIGURES."""

    def __init__(self, warmup: int, steps: int, sample_rate: int) -> None:
        self._warmup, self._steps, self._rate = warmup, steps, sample_rate
        self._seen = 0
        self._totals = dict.fromkeys(("clips", "samples", "padded", "waited"), 0.0)
        self._began = self._cpu = self._ended = 0.0

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        now = time.perf_counter()
        if self._seen == self._warmup:
            self._began, self._cpu = now, _cpu_seconds()
        elif self._seen > self._warmup:
            self._totals["waited"] += now - self._ended

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._seen += 1
        self._ended = time.perf_counter()
        if self._seen > self._warmup:
            lengths = batch.audio_len if hasattr(batch, "audio_len") else batch.lengths
            self._totals["clips"] += len(lengths)
            self._totals["samples"] += int(lengths.sum())
            self._totals["padded"] += batch.audio.numel()
        if self._seen == self._warmup + self._steps:
            self._write()
            trainer.should_stop = True

    def _write(self) -> None:
        seconds = self._ended - self._began
        figures = {
            "clips_per_s": self._totals["clips"] / seconds,
            "sound_per_s": self._totals["samples"] / self._rate / seconds,
            "padding": 1 - self._totals["samples"] / self._totals["padded"],
            "data_ms": 1000 * self._totals["waited"] / self._steps,
            "step_ms": 1000 * seconds / self._steps,
            "busy": (_cpu_seconds() - self._cpu) / seconds / (os.cpu_count() or 1),
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))


def _cpu_seconds() -> float:
    """Of this process and, once they have ended, of its workers: those that live are counted by none."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
