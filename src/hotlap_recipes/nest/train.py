"""Pre-train NEST with Lightning, by a Hydra config with NeMo's keys.

    python -m hotlap_recipes.nest.train --config-name nest_fast-conformer_fast size=small \\
        model.train_ds.manifest_filepath=speech/train_manifest.json trainer.max_steps=1000

Exit codes: 0 trained, 1 the loss is not finite, 2 bad input.
"""

from __future__ import annotations

import ctypes
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import hydra
import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from omegaconf import DictConfig, OmegaConf

from hotlap_recipes.nest import BadInputError
from hotlap_recipes.nest.data import SpeechData
from hotlap_recipes.nest.module import BadClips, NestModule, NonFiniteLossError, Throughput, say
from hotlap_recipes.nest.settings import check

RESUMED = "resume"  # folder of the checkpoints to go on from


@hydra.main(version_base=None, config_path="configs", config_name="nest_fast-conformer")
def main(config: DictConfig) -> None:
    try:
        train(config)
    except BadInputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except NonFiniteLossError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def train(config: DictConfig) -> lightning.Trainer:
    check(config)
    trainer, module, data = build(config)
    say(data.described())
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint_to_resume(config))
    return trainer


def build(config: DictConfig) -> tuple[lightning.Trainer, NestModule, SpeechData]:
    if config.keep_freed_memory:
        keep_freed_memory()
    lightning.seed_everything(config.seed, verbose=False)
    data = SpeechData(config)
    trained = config.model.train_ds
    callbacks: list[Any] = [BadClips(trained, data.survey.lines), Throughput(trained.sample_rate)]
    folder = log_folder(config)
    if config.exp_manager.create_checkpoint_callback:
        callbacks += checkpoints(config, folder, data.validates)
    logger: Any = config.trainer.logger
    if config.exp_manager.create_tensorboard_logger:
        logger = TensorBoardLogger(folder.parent, name=folder.name, version="")
    options = trainer_options(config.trainer)
    if not data.validates:
        options["limit_val_batches"] = 0
    trainer = lightning.Trainer(
        **options,
        logger=logger,
        callbacks=callbacks,
        enable_checkpointing=bool(config.exp_manager.create_checkpoint_callback),
        use_distributed_sampler=False,
    )
    return trainer, NestModule(config), data


def keep_freed_memory() -> None:
    """glibc gives large blocks back to the system, which would hand them out again page by page in the next step."""
    libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(-4, 0)  # M_MMAP_MAX: none of them comes from the system itself
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: none is given back


def trainer_options(config: DictConfig) -> dict[str, Any]:
    """NeMo's trainer keys are Lightning's; here are those that mean another thing without a GPU."""
    options = plain(config)
    for name in ("logger", "enable_checkpointing"):
        options.pop(name)
    gpus = torch.cuda.device_count() if options["accelerator"] in ("auto", "gpu", "cuda") else 0
    if options["devices"] == -1:
        options["devices"] = gpus or 1
    count = options["devices"] if isinstance(options["devices"], int) else len(options["devices"])
    if options["strategy"] == "auto" and count * options["num_nodes"] > 1:
        options["strategy"] = "ddp" if hasattr(os, "fork") else "ddp_spawn"
    if options["sync_batchnorm"] and not gpus:
        options["sync_batchnorm"] = False
        if count > 1:
            say("sync_batchnorm: torch has none for the CPU; each process has its own statistics")
    options["precision"] = precision(options["precision"], bool(gpus))
    return options


def plain(config: DictConfig) -> dict[str, Any]:
    found: Any = OmegaConf.to_object(config)
    return dict(found)


def precision(asked: Any, on_gpu: bool) -> str:
    """NeMo's names in Lightning's; `auto` is what the hardware computes faster than single precision."""
    known = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true"}
    if asked != "auto":
        return known.get(str(asked), str(asked))
    if on_gpu:
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"
    has_units = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16-mixed" if has_units else "32-true"


def log_folder(config: DictConfig) -> Path:
    """As NeMo: a run that may be resumed has a folder without a version, others one by their time."""
    manager = config.exp_manager
    folder = Path(manager.exp_dir or "nest_experiments") / str(manager.name)
    if manager.version:
        return folder / str(manager.version)
    if manager.resume_if_exists:
        return folder
    # All ranks are to name the same folder: the first leaves the time to those that it starts.
    return folder / os.environ.setdefault("NEST_STARTED", datetime.now().strftime("%Y-%m-%d_%H-%M-%S"))


def checkpoints(config: DictConfig, folder: Path, validates: bool) -> list[ModelCheckpoint]:
    """The best by validation, and the last to go on from, which a kill in mid-save does not damage."""
    options = plain(config.exp_manager.checkpoint_callback_params)
    steps = options.pop("every_n_train_steps")
    last = ModelCheckpoint(
        folder / RESUMED,
        filename="step={step}",
        auto_insert_metric_name=False,
        monitor="step",
        mode="max",
        save_top_k=1,
        every_n_train_steps=steps,
        save_on_train_epoch_end=None if steps else True,
    )
    if not validates:
        return [last]
    best = ModelCheckpoint(folder / "checkpoints", filename="{epoch}-{step}-{val_loss:.3f}", **options)
    return [best, last]


def checkpoint_to_resume(config: DictConfig) -> str | None:
    manager = config.exp_manager
    if not manager.resume_if_exists:
        return None
    found = list((log_folder(config) / RESUMED).glob("step=*.ckpt"))
    if found:
        return str(max(found, key=lambda path: int(path.stem.partition("=")[2].partition("-")[0])))
    if manager.resume_ignore_no_checkpoint:
        return None
    raise BadInputError(
        f"there is no checkpoint in {log_folder(config) / RESUMED}.",
        "set exp_manager.resume_ignore_no_checkpoint=true to begin anew.",
    )


if __name__ == "__main__":
    main()
