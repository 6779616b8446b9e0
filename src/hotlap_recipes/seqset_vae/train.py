"""Train the set-sequence auto-encoder with PyTorch Lightning.

    python -m hotlap_recipes.seqset_vae.train --data_dir data --preset quick
    python -m hotlap_recipes.seqset_vae.train --data_dir data --naive --epochs 1
    python -m hotlap_recipes.seqset_vae.train --data_dir data --mode finetune --checkpoint runs/.../best.ckpt

Exit codes: 0 trained, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from hotlap.watch import PosteriorMonitor
from hotlap_recipes.seqset_vae import BadInputError
from hotlap_recipes.seqset_vae.data import SubjectData
from hotlap_recipes.seqset_vae.model import SIZES
from hotlap_recipes.seqset_vae.module import Finetuning, Objective, Pretraining
from hotlap_recipes.seqset_vae.naive_monitor import NaiveMonitor
from hotlap_recipes.seqset_vae.presets import DEFAULTS, PRESETS, monitor_budget, resolved

CHECKS_AN_EPOCH = 10
VALIDATED_SHARE = 0.1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs"), help="logs and checkpoints")
    parser.add_argument("--mode", choices=("pretrain", "finetune"), default="pretrain")
    parser.add_argument("--checkpoint", type=Path, help="the pretrained model; finetune needs one")
    parser.add_argument("--preset", choices=sorted(PRESETS))
    parser.add_argument("--naive", action="store_true", help="as such scripts are written today")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--beta", type=float, default=1.0, help="weight of the KL divergence")
    parser.add_argument("--beta_warmup_steps", type=int, default=200)
    parser.add_argument("--free_bits", type=float, default=0.03, help="nats of a dimension that cost nothing")
    add_settings(parser)
    options = parser.parse_args(arguments)
    given = {name: value for name, value in vars(options).items() if name in DEFAULTS}
    for name, value in resolved(given, options.preset, options.naive).items():
        setattr(options, name, value)
    check(options)
    return options


def add_settings(parser: argparse.ArgumentParser) -> None:
    """What presets set. Without a default here: what is not given is not in the options."""
    group = parser.add_argument_group("settings of presets", argument_default=argparse.SUPPRESS)
    add, either = group.add_argument, argparse.BooleanOptionalAction
    add("--size", choices=list(SIZES))
    add("--epochs", type=int)
    add("--max_steps", type=int, help="optimizer steps, at most")
    add("--batch_size", type=int)
    add("--gradient_accumulation_steps", type=int)
    add("--num_workers", type=int)
    add("--pin_memory", action=either)
    add("--max_sequence_length", type=int, help="sets of a sequence, at most")
    add("--use_dynamic_padding", action=either, help="pad to the longest of a batch, not to the maximum")
    add("--bucket_by_length", action=either, help="batches of sequences of like length")
    add(
        "--packed", action=either, help="convert the Parquet files once, and read them at the speed of memory"
    )
    add("--precision", choices=("32", "16-mixed", "bf16-mixed"))
    add("--compile_model", action=either)
    add("--fast_detection", action=either, help="let the collapse monitor take a fifth of its time")
    add("--disable_metrics_monitoring", action=either, help="no collapse monitor")


def check(options: argparse.Namespace) -> None:
    positive = ("batch_size", "epochs", "gradient_accumulation_steps", "max_sequence_length", "devices")
    least = dict.fromkeys(positive, 1) | {"num_workers": 0, "beta_warmup_steps": 0}
    for name, lowest in least.items():
        value = getattr(options, name)
        if value < lowest:
            raise BadInputError(f"--{name} is {value}.", f"give at least {lowest}.")
    if options.mode == "finetune" and not (options.checkpoint and options.checkpoint.is_file()):
        raise BadInputError(
            f"--mode finetune needs a pretrained model, and --checkpoint is {options.checkpoint}.",
            "give the path of a .ckpt file that --mode pretrain wrote.",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        train(parse(arguments))
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def train(options: argparse.Namespace) -> lightning.Trainer:
    lightning.seed_everything(options.seed, verbose=False)
    data = SubjectData(options)
    module = make_module(options, data)
    if options.compile_model:
        module.model.compile()
    trainer = make_trainer(options, data)
    trainer.fit(module, datamodule=data)
    return trainer


def make_module(options: argparse.Namespace, data: SubjectData) -> Pretraining | Finetuning:
    objective = Objective(options.beta, options.beta_warmup_steps, options.free_bits, options.lr)
    if options.mode == "pretrain":
        return Pretraining(data.width, options.size, objective)
    pretrained = Pretraining.load_from_checkpoint(options.checkpoint, objective=objective)
    if pretrained.hparams["embedding"] != data.width:
        raise BadInputError(
            f"{options.checkpoint} was trained on embeddings of {pretrained.hparams['embedding']} numbers, "
            f"{options.data_dir} has {data.width}.",
            "finetune on the kind of data that it was pretrained on.",
        )
    return Finetuning(pretrained, options.lr)


def make_trainer(options: argparse.Namespace, data: SubjectData) -> lightning.Trainer:
    """Validation ten times an epoch, on a tenth of the batches: at least one, where Lightning would refuse none."""
    batches = {split: -(-len(rows) // options.batch_size) for split, rows in data.lengths.items()}
    each = batches["train"] // options.devices
    return lightning.Trainer(
        accelerator="auto",
        devices=options.devices,
        max_epochs=options.epochs,
        max_steps=options.max_steps,
        precision=options.precision,
        accumulate_grad_batches=options.gradient_accumulation_steps,
        val_check_interval=max(1, each // CHECKS_AN_EPOCH),
        limit_val_batches=max(1, int(VALIDATED_SHARE * batches["valid"] / options.devices)),
        num_sanity_val_steps=0,
        # The bucket sampler gives every rank its own batches by itself.
        use_distributed_sampler=not options.bucket_by_length,
        logger=TensorBoardLogger(options.out, name=options.mode),
        callbacks=make_callbacks(options),
        enable_model_summary=False,
        enable_progress_bar=False,
        detect_anomaly=False,
    )


def make_callbacks(options: argparse.Namespace) -> list[Any]:
    # Said outright: Lightning takes a validation after every batch (1) for one at the end of an epoch (1.0).
    best = ModelCheckpoint(
        monitor="valid/loss", filename="best-{step}", save_top_k=2, save_on_train_epoch_end=False
    )
    found: list[Any] = [best, Throughput()]
    if options.mode == "finetune":
        return found
    if options.naive and not (options.fast_detection or options.disable_metrics_monitoring):
        return [*found, NaiveMonitor()]
    return [*found, PosteriorMonitor(budget=monitor_budget(vars(options)))]


class Throughput(lightning.Callback):
    """Tells at the end of each epoch how many sequences were trained on. Validation is part of the time."""

    def on_train_epoch_start(self, _: Any, __: Any) -> None:
        self.began, self.sequences = time.perf_counter(), 0

    def on_train_batch_end(self, trainer: lightning.Trainer, _: Any, __: Any, batch: Any, ___: int) -> None:
        self.sequences += len(batch["minutes"]) * trainer.world_size

    def on_train_epoch_end(self, trainer: lightning.Trainer, _: Any) -> None:
        if not trainer.is_global_zero:
            return
        seconds = time.perf_counter() - self.began
        loss = trainer.callback_metrics.get("valid/loss")
        shown = "not validated" if loss is None else f"validation {float(loss):.2f}"
        print(
            f"epoch {trainer.current_epoch + 1}  {shown}  trained {self.sequences} sequences in {seconds:.1f} s, "
            f"{self.sequences / seconds:.1f} sequences/s",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
