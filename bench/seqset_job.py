"""Trains the recipe seqset_vae for a while and writes sequences a second, wall and CPU. Run by seqset_vae.py.

usage: python bench/seqset_job.py BATCHES [options of the recipe's train.py]
The first batches (imports, caches, a compiler) are left out. Data, monitor and validation are part of the time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import lightning

from hotlap_recipes.seqset_vae import train
from hotlap_recipes.seqset_vae.data import SubjectData

WARM_UP = 4


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class Stopwatch(lightning.Callback):
    def __init__(self, batches: int) -> None:
        self.left = WARM_UP + batches
        self.sequences, self.began, self.ended = 0, (0.0, 0.0), (0.0, 0.0)
        self.batches = batches

    def on_train_batch_start(self, *_: Any) -> int | None:
        """Lightning ends the epoch where this returns -1."""
        return -1 if self.left <= 0 else None

    def on_train_batch_end(self, trainer: Any, _: Any, __: Any, batch: Any, ___: int) -> None:
        self.left -= 1
        if self.left == self.batches:
            self.began = clocks()
        elif self.left < self.batches:
            self.sequences += len(batch["minutes"])
            self.ended = clocks()
        trainer.should_stop = self.left <= 0


def main() -> None:
    options = train.parse(sys.argv[2:])
    lightning.seed_everything(options.seed, verbose=False)
    data = SubjectData(options)
    module = train.make_module(options, data)
    if options.compile_model:
        module.model.compile()
    trainer = train.make_trainer(options, data)
    watch = Stopwatch(int(sys.argv[1]))
    trainer.callbacks.append(watch)  # the last one: what the others do for a batch is part of its time
    trainer.fit(module, datamodule=data)
    wall, cpu = (end - begin for begin, end in zip(watch.began, watch.ended, strict=True))
    figures = {"second": watch.sequences / wall, "CPU-second": watch.sequences / cpu}
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
