"""From the keys that users of mm know to the arguments of mmengine's Runner."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal
from uuid import uuid4

import torch
from mmengine.dataset import DefaultSampler, InfiniteSampler
from mmengine.evaluator import Evaluator
from torch.utils.data import DataLoader

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.dataset import BevItem, NuScenesBev
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.hooks import RandomState, Throughput
from hotlap_recipes.lss_swin.metric import MeanIoU
from hotlap_recipes.lss_swin.model import BevSegmentor, LiftSplatSwin
from hotlap_recipes.lss_swin.precision import CpuAmpOptimWrapper

Say = Callable[[str], None]
Words = dict[str, Any]


def grid_of(config: Any) -> BevGrid:
    return BevGrid(**{axis: tuple(bounds) for axis, bounds in config.get("grid", {}).items()})


def build_model(config: Any) -> BevSegmentor:
    options = {key: value for key, value in config.model.items() if key not in ("type", "pos_weight")}
    if "depth" in options:
        options["depth"] = tuple(options["depth"])
    height, width = config.data.image_size
    stride = options.get("stride", 16)
    if height % stride or width % stride:
        raise BadInputError(
            f"data.image_size is {height} x {width}, which model.stride={stride} does not divide.",
            f"give data.image_size=({height // stride * stride or stride},{width // stride * stride or stride}).",
        )
    network = LiftSplatSwin((height, width), grid_of(config), **options)
    return BevSegmentor(network, config.model.get("pos_weight", (1.0, 1.0)))


def build_dataset(config: Any, split: Literal["train", "val"]) -> NuScenesBev:
    data = config.data
    return NuScenesBev(
        data.root,
        split,
        cameras=tuple(data.cameras),
        image_size=tuple(data.image_size),
        grid=grid_of(config),
        decode=data.get("decode", "full"),
        packed=data.get("packed"),
    )


def runner_arguments(config: Any, work_dir: str, validate: bool, say: Say) -> Words:
    """Everything that `Runner(...)` takes."""
    seed = config.get("seed")
    arguments: Words = {
        "model": build_model(config),
        "work_dir": work_dir,
        # mmengine names a run by the second, and is at odds with two in one process that began in the same one.
        "experiment_name": uuid4().hex[:8],
        "train_dataloader": loader(config, "train", say),
        "train_cfg": {"type": "IterBasedTrainLoop", "max_iters": config.runner.max_iters},
        "optim_wrapper": optim_wrapper(config, say),
        "param_scheduler": schedulers(config),
        "default_hooks": {
            "logger": {"type": "LoggerHook", "interval": config.get("log_config", {}).get("interval", 50)},
            "checkpoint": {
                "type": "CheckpointHook",
                "by_epoch": False,
                "interval": 2000,
                **config.get("checkpoint_config", {}),
            },
        },
        "custom_hooks": [Throughput(), RandomState(), *config.get("custom_hooks", [])],
        "log_processor": {"by_epoch": False},
        "env_cfg": {"cudnn_benchmark": config.get("cudnn_benchmark", False)},
        "log_level": config.get("log_level", "INFO"),
        "randomness": {"seed": seed},
        "launcher": "pytorch" if "LOCAL_RANK" in os.environ else "none",
        "load_from": config.get("resume_from") or config.get("load_from"),
        "resume": bool(config.get("resume_from")),
    }
    if validate and config.get("evaluation"):
        evaluation = config.evaluation
        arguments["train_cfg"]["val_interval"] = evaluation.get("interval", 2000)
        arguments["val_dataloader"] = loader(config, "val", lambda _: None)
        arguments["val_cfg"] = {"fp16": _half(config) and torch.cuda.is_available()}
        arguments["val_evaluator"] = Evaluator(MeanIoU(evaluation.get("pre_eval", True)))
    return arguments


def loader(config: Any, split: Literal["train", "val"], say: Say) -> DataLoader[BevItem]:
    """Training goes on for ever in an order of its seed; validation is in the order of the data."""
    data, dataset = config.data, build_dataset(config, split)
    workers = workers_here(data.workers_per_gpu, say)
    # torch refuses these two without workers
    ahead = {key: data[key] for key in ("persistent_workers", "prefetch_factor") if workers and key in data}
    sampler = InfiniteSampler(dataset, seed=config.get("seed")) if split == "train" else None
    return DataLoader(
        dataset,
        batch_size=data.samples_per_gpu,
        sampler=sampler or DefaultSampler(dataset, shuffle=False),
        num_workers=workers,
        pin_memory=data.get("pin_memory", False) and torch.cuda.is_available(),
        # Of its own: a validation would else draw from the network's, and a resumed run be another one.
        generator=torch.Generator().manual_seed(config.get("seed") or 0),
        **ahead,
    )


def workers_here(asked: int, say: Say) -> int:
    """More workers than cores take turns on the cores, and take them from the training."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if asked > cores:
        say(
            f"data.workers_per_gpu is {asked}, and this machine has {cores} cores: {cores} workers are started."
        )
    return min(asked, cores)


def optim_wrapper(config: Any, say: Say) -> Words:
    counts = config.runner.get("accumulative_counts", 1)
    words: Words = {
        "type": "OptimWrapper",
        "optimizer": {**config.optimizer, "lr": learning_rate(config, counts, say)},
        "accumulative_counts": counts,
        "clip_grad": config.get("optimizer_config", {}).get("grad_clip"),
    }
    if _half(config):
        scale = (config.get("fp16") or {}).get("loss_scale", "dynamic")
        words["dtype"] = "bfloat16" if config.get("bf16") else "float16"
        words["type"] = "AmpOptimWrapper" if torch.cuda.is_available() else CpuAmpOptimWrapper
        words["loss_scale"] = float(scale) if isinstance(scale, int) else scale
        if config.get("bf16"):  # the range of float32: nothing to scale
            words["loss_scale"] = {"enabled": False}
    return words


def learning_rate(config: Any, counts: int, say: Say) -> float:
    """Linear in the samples of one optimizer step, where `auto_scale_lr` asks for it."""
    given = float(config.optimizer.lr)
    scaling: Mapping[str, Any] = config.get("auto_scale_lr") or {}
    batch: int = config.data.samples_per_gpu * counts * int(os.environ.get("WORLD_SIZE", 1))
    base = int(scaling.get("base_batch_size", batch))
    if not scaling.get("enable") or batch == base:
        return given
    scaled = given * batch / base
    say(f"optimizer.lr is {given:g} for a batch of {base}: {scaled:g} for one of {batch}.")
    return scaled


def schedulers(config: Any) -> list[Words]:
    """A linear warm-up, and poly from there on; a run that ends within its warm-up has nothing else."""
    schedule, last = config.lr_config, config.runner.max_iters
    warm = schedule.get("warmup_iters", 0) if schedule.get("warmup") else 0
    steps: list[Words] = []
    if warm:
        factor = schedule.get("warmup_ratio", 0.1)
        steps.append({"type": "LinearLR", "start_factor": factor, "by_epoch": False, "begin": 0, "end": warm})
    if last > warm:
        floor = schedule.get("min_lr", 0.0)
        poly = {"type": "PolyLR", "power": schedule.power, "eta_min": floor, "by_epoch": False}
        steps.append({**poly, "begin": warm, "end": last})
    return steps


def _half(config: Any) -> bool:
    return bool(config.get("fp16")) or bool(config.get("bf16"))
