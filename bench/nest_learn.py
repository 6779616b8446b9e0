"""Does the nest recipe learn from recorded speech? Its loss on clips that it never heard, beside a constant guess.

python -m hotlap_recipes.nest.make_data --out speech
python bench/nest_learn.py speech [--steps 3000] [--size tiny] [--classes 256]

The constant guess knows how often each code comes in the validation clips, and nothing of what was heard: whoever
does better than that uses the sound around a masked frame. On a CPU, without other clips and noise mixed in.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch

from hotlap_recipes.nest.train import build
from interleave import host_line
from nest_alignment import config_of

BATCH = 8
LOOKS = 6


class Told(lightning.Callback):
    """Prints the loss on validation clips whenever it is known."""

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        if not trainer.sanity_checking:
            found = float(trainer.callback_metrics["val_loss"])
            print(f"{trainer.global_step:>6} steps  {found:8.3f}", flush=True)


def config_for(options: argparse.Namespace, folder: str) -> Any:
    config = config_of(
        [
            f"size={options.size}",
            f"model.num_classes={options.classes}",
            f"model.train_ds.batch_size={BATCH}",
            "model.train_ds.max_duration=6",
            "model.train_ds.batch_augmentor.prob=0",
            "model.validation_ds.batch_augmentor.prob=0",
            f"model.validation_ds.manifest_filepath={options.data.resolve()}/validation_manifest.json",
            f"trainer.max_steps={options.steps}",
            "trainer.max_epochs=-1",
            "trainer.check_val_every_n_epoch=null",
            f"trainer.val_check_interval={options.steps // LOOKS}",
            "trainer.accelerator=cpu",
            "trainer.enable_progress_bar=false",
            "exp_manager.create_checkpoint_callback=false",
            "exp_manager.resume_if_exists=false",
            f"exp_manager.exp_dir={folder}",
            f"model.optim.sched.warmup_steps={options.steps // 4}",
        ]
    )
    config.model.train_ds.manifest_filepath = f"{options.data.resolve()}/train_manifest.json"
    return config


@torch.no_grad()
def constant_guess(module: Any, data: Any) -> float:
    """Entropy of the codes of all validation frames, in nats."""
    counts = torch.zeros(module.nest.decoder.classes)
    for batch in data.val_dataloader():
        features, frames = module.nest.preprocessor(batch.audio, batch.lengths)
        codes, stack = module.nest.quantizer(features), module.nest.stack
        for row, length in zip(codes, (frames // stack).tolist(), strict=True):
            counts += torch.bincount(row[:length].flatten(), minlength=len(counts))
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--classes", type=int, default=256)
    options = parser.parse_args()
    print(host_line())
    with tempfile.TemporaryDirectory() as folder:
        trainer, module, data = build(config_for(options, folder))
        trainer.callbacks.append(Told())
        trainer.fit(module, datamodule=data)
    found, guess = float(trainer.callback_metrics["val_loss"]), constant_guess(module, data)
    print(f"any code          {math.log(options.classes):8.3f}\nconstant guess    {guess:8.3f}")
    verdict = "reached" if found < guess else "missed"
    print(f"target: below the constant guess on clips that were not trained on: {verdict}")


if __name__ == "__main__":
    main()
