"""The data of a run: manifests and shards surveyed once, loaders for every rank, and the place to resume from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, Sampler

from hotlap.data.bucketing import BucketBatchSampler
from hotlap_recipes.nest.dataset import Clips, Collate, Mixing, Source
from hotlap_recipes.nest.manifest import Survey, paths_of, read_manifests
from hotlap_recipes.nest.sounds import Files, Shards


class Order(Sampler[int]):
    """The clips of one rank in the order of an epoch, from the place where a resumed one goes on."""

    def __init__(self, clips: Clips, shuffle: bool, seed: int, rank: int, world: int) -> None:
        self._clips, self.shuffle, self._seed = clips, shuffle, seed
        self._rank, self._world = rank, world
        self.epoch, self.skipped = 0, 0

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.skipped = 0
        self.epoch = epoch
        self._clips.set_epoch(epoch)

    def __len__(self) -> int:
        return -(-len(self._clips) // self._world)

    def __iter__(self) -> Iterator[int]:
        count = len(self._clips)
        random = torch.Generator().manual_seed(self._seed + self.epoch)
        order = (torch.randperm(count, generator=random) if self.shuffle else torch.arange(count)).tolist()
        order += order[: len(self) * self._world - count]  # every rank has as many
        yield from order[self._rank :: self._world][self.skipped :]


class Buckets(BucketBatchSampler):
    """Batches of clips of like length, from the place where a resumed epoch goes on."""

    def __init__(self, clips: Clips, config: Any, seed: int, rank: int, world: int) -> None:
        size = config.bucketing_batch_size or config.batch_size
        super().__init__(
            clips.lengths,
            size,
            shuffle=config.shuffle,
            seed=seed,
            drop_last=config.drop_last,
            ranks=(rank, world),
        )
        self._clips, self.skipped = clips, 0

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.skipped = 0
        super().set_epoch(epoch)
        self._clips.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches(self.epoch)[self.skipped :]:
            yield list(batch)


class ResumableLoader(DataLoader[Any]):
    """Lightning asks a loader whether it can go on in mid-epoch. It can: SpeechData keeps the place."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class SpeechData(lightning.LightningDataModule):
    """Lightning saves `state_dict` with the weights: how far the epoch has come, in batches."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self._config = config
        self._resumed = {"epoch": 0, "batches": 0}
        self.sampler: Order | Buckets | None = None
        self.survey, self._source = survey(config.model.train_ds)
        validated = config.model.validation_ds
        self.validates = bool(paths_of(validated.manifest_filepath))
        self._validation = survey(validated) if self.validates else None
        self._noises = {
            part: noises(config.model[part]) for part in ("train_ds", "validation_ds")[: 1 + self.validates]
        }

    def described(self) -> str:
        found = f"training: {self.survey.summary()}"
        return found + (f"\nvalidation: {self._validation[0].summary()}" if self._validation else "")

    def train_dataloader(self) -> DataLoader[Any]:
        config = self._config.model.train_ds
        clips = self._clips("train_ds", self.survey, self._source)
        rank, world = self._rank()
        batches: dict[str, Any]
        if config.bucketing_strategy == "none":
            order = Order(clips, config.shuffle, self._config.seed, rank, world)
            order.set_epoch(self._resumed["epoch"])
            order.skipped = self._resumed["batches"] * config.batch_size
            batches = {"batch_size": config.batch_size, "sampler": order, "drop_last": config.drop_last}
            self.sampler = order
        else:
            buckets = Buckets(clips, config, self._config.seed, rank, world)
            buckets.set_epoch(self._resumed["epoch"])
            buckets.skipped = self._resumed["batches"]
            batches = {"batch_sampler": buckets}
            self.sampler = buckets
        return ResumableLoader(clips, **batches, **self._workers(config))

    def val_dataloader(self) -> DataLoader[Any]:
        config = self._config.model.validation_ds
        assert self._validation is not None
        clips = self._clips("validation_ds", *self._validation)
        rank, world = self._rank()
        if config.bucketing_strategy == "none":
            order = Order(clips, False, self._config.seed, rank, world)
            return DataLoader(clips, config.batch_size, sampler=order, **self._workers(config))
        buckets = Buckets(clips, config, self._config.seed, rank, world)
        return DataLoader(clips, batch_sampler=buckets, **self._workers(config))

    def set_epoch(self, epoch: int) -> None:
        if self.sampler is not None:
            self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        trainer = self.trainer
        assert trainer is not None
        done: int = trainer.fit_loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        ended = done >= trainer.num_training_batches
        return {"epoch": trainer.current_epoch + ended, "batches": 0 if ended else done}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._resumed = dict(state_dict)

    def _clips(self, part: str, found: Survey, source: Source) -> Clips:
        config = self._config.model[part]
        return Clips(
            found.entries,
            source,
            self._noises[part],
            Mixing.of(config.batch_augmentor),
            config.sample_rate,
            config.min_duration,
            self._config.seed,
        )

    def _rank(self) -> tuple[int, int]:
        assert self.trainer is not None
        return self.trainer.global_rank, self.trainer.world_size

    def _workers(self, config: Any) -> dict[str, Any]:
        options = {
            "num_workers": config.num_workers,
            "pin_memory": bool(config.pin_memory) and torch.cuda.is_available(),
            "collate_fn": Collate(Mixing.of(config.batch_augmentor)),
        }
        if config.num_workers:
            options |= {
                "persistent_workers": bool(config.persistent_workers),
                "prefetch_factor": config.prefetch_factor,
            }
        return options


def survey(config: Any) -> tuple[Survey, Source]:
    """The clips that the config names and where they are read from; raises where too many are bad."""
    tarred = bool(config.tarred_audio_filepaths) if config.is_tarred == "auto" else bool(config.is_tarred)
    limits = (config.min_duration or 0.0, config.max_duration or float("inf"))
    found = read_manifests(paths_of(config.manifest_filepath), *limits, tarred)
    source: Source = Files(config.sample_rate)
    if tarred:
        source = shards = Shards(paths_of(config.tarred_audio_filepaths), config.sample_rate)
        faults = [shards.fault(entry) for entry in found.entries]
        found.entries = [entry for entry, fault in zip(found.entries, faults, strict=True) if fault is None]
        found.faults += [fault for fault in faults if fault is not None]
    found.require_use(config.on_bad_clip, config.max_bad_share)
    return found, source


def noises(config: Any) -> list[Any]:
    paths = paths_of(config.noise_manifest)
    if not paths or not Mixing.of(config.batch_augmentor).prob:
        return []
    found = read_manifests(paths, 0.0, float("inf"))
    found.require_use(config.on_bad_clip, config.max_bad_share)
    return found.entries
