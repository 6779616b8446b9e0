"""Batches of subjects: read from Parquet or from packed files, padded, in random order or by length."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data import BucketBatchSampler, open_shards
from hotlap.data.pack.job import PackRequest
from hotlap.data.pack.run import pack
from hotlap.data.shards import read_seal
from hotlap_recipes.seqset_vae import LARGEST_SET, subjects
from hotlap_recipes.seqset_vae.subjects import Item, ParquetSubjects, read_table

Batch = dict[str, torch.Tensor]


class PackedSubjects(Dataset[Item]):
    """The items of ParquetSubjects, from a memory-mapped file."""

    def __init__(self, folder: Path) -> None:
        self.shards = open_shards(folder)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, index: int) -> Item:
        item: Item = self.shards[index]
        return item


class Collate:
    """Items to a batch: each is cut to `longest` sets and padded to as many, or if `dynamic` to the longest here."""

    def __init__(self, longest: int, dynamic: bool) -> None:
        self.longest, self.dynamic = longest, dynamic

    def __call__(self, items: Sequence[Item]) -> Batch:
        sizes = [item["sizes"][: self.longest] for item in items]
        counts = [len(each) for each in sizes]
        sets = max(counts) if self.dynamic else self.longest
        most = max(int(each.max()) for each in sizes) if self.dynamic else LARGEST_SET
        own = torch.zeros(len(items), sets, dtype=torch.int64)
        minutes = torch.zeros(len(items), sets)
        for row, (item, count) in enumerate(zip(items, counts, strict=True)):
            own[row, :count] = torch.as_tensor(sizes[row])
            minutes[row, :count] = torch.as_tensor(item["minutes"][:count])
        present = torch.arange(most) < own[..., None]
        seen = np.concatenate([item["events"][: each.sum()] for item, each in zip(items, sizes, strict=True)])
        events = torch.zeros(present.numel(), seen.shape[1])
        events.index_copy_(0, present.flatten().nonzero().squeeze(1), torch.as_tensor(seen).float())
        outcome = torch.tensor([float(item["outcome"]) for item in items])
        events = events.reshape(*present.shape, -1)
        return {"events": events, "present": present, "minutes": minutes, "outcome": outcome}


class SubjectData(lightning.LightningDataModule):
    """Reads data_dir, packed, batch_size, num_workers, pin_memory, use_dynamic_padding, bucket_by_length,
    max_sequence_length and seed of the options."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options
        self.lengths = {
            split: np.minimum(read_table(options.data_dir, split)["sets"], options.max_sequence_length)
            for split in ("train", "valid")
        }

    @property
    def width(self) -> int:
        """Numbers of an embedding."""
        first: np.ndarray[Any, Any] = ParquetSubjects(str(self.options.data_dir), "train")[0]["events"]
        return int(first.shape[1])

    def prepare_data(self) -> None:
        """Lightning calls this in one process of each machine."""
        if self.options.packed:
            for split in self.lengths:
                pack_once(self.options.data_dir, split)

    def train_dataloader(self) -> DataLoader[Item]:
        if not self.options.bucket_by_length:
            return self._loader("train", batch_size=self.options.batch_size, shuffle=True)
        lengths = self.lengths["train"].to_list()
        batches = BucketBatchSampler(lengths, self.options.batch_size, seed=self.options.seed)
        return self._loader("train", batch_sampler=batches)

    def val_dataloader(self) -> DataLoader[Item]:
        return self._loader("valid", batch_size=self.options.batch_size)

    def _loader(self, split: str, **batches: Any) -> DataLoader[Item]:
        return DataLoader(
            dataset_of(self.options.data_dir, split, self.options.packed),
            num_workers=self.options.num_workers,
            pin_memory=self.options.pin_memory,
            persistent_workers=self.options.num_workers > 0,
            collate_fn=Collate(self.options.max_sequence_length, self.options.use_dynamic_padding),
            **batches,
        )


def dataset_of(data_dir: Path, split: str, packed: bool) -> Dataset[Item]:
    if packed:
        return PackedSubjects(packed_folder(data_dir, split))
    return ParquetSubjects(str(data_dir), split)


def pack_once(data_dir: Path, split: str) -> Path:
    """The folder of the packed split; packed now if it is not there, or if the Parquet files have changed."""
    folder = packed_folder(data_dir, split)
    if read_seal(folder) is None:
        arguments = {"data_dir": str(data_dir), "split": split}
        order = PackRequest(f"{subjects.__name__}:ParquetSubjects", "flat", arguments, shards=1)
        pack(order, folder, _Silent())
    return folder


def packed_folder(data_dir: Path, split: str) -> Path:
    """Its name holds what it was made of, so that one that is out of date is not found."""
    sources = [
        data_dir / "subjects.parquet",
        data_dir / f"{split}.parquet",
        *(data_dir / split).glob("*.parquet"),
    ]
    digest = hashlib.sha256(Path(subjects.__file__).read_bytes())
    for path in sorted(each for each in sources if each.exists()):
        known = path.stat()
        digest.update(f"{path.name} {known.st_size} {known.st_mtime_ns}".encode())
    return data_dir / "packed" / f"{split}-{digest.hexdigest()[:12]}"


class _Silent:
    def begin(self, what: str, samples: int, done: int) -> None: ...

    def tell(self, samples: int, size: int) -> None: ...
