"""How each reader reads: the same samples, decoded the same way, in batches of (padded values, lengths).

A reader is imported by its own function, so that one that is not installed is only missing from the table. Ways of one
reader differ in settings (workers); the best counts.
"""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

Way = Callable[[Path], Iterator[Any]]
Ways = dict[str, list[Way]]
SPEECH_BATCH, PHOTO_BATCH, WINDOW_BATCH, SEQUENCE_BATCH = 16, 8, 512, 32
SIZE, MEAN, STD = (256, 704), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pad(arrays: Sequence[Any]) -> tuple[torch.Tensor, list[int]]:
    lengths = [len(each) for each in arrays]
    batch = torch.zeros((len(arrays), max(lengths)), dtype=torch.as_tensor(arrays[0][:1]).dtype)
    for row, each, length in zip(batch, arrays, lengths, strict=True):
        row[:length] = torch.as_tensor(each)
    return batch, lengths


def stack(photos: Sequence[Any]) -> tuple[torch.Tensor, list[int]]:
    return torch.stack([torch.as_tensor(each) for each in photos]), [3] * len(photos)


def windows_of(values: Any) -> tuple[Any, list[int]]:
    return values, [values.shape[1]] * len(values)


def batches(count: int, size: int) -> list[list[int]]:
    order = np.random.default_rng(1).permutation(count).tolist()
    return [order[at : at + size] for at in range(0, count, size)]


@cache
def by_length(folder: Path) -> list[list[int]]:
    """Sequences of about one length in a batch, batches shuffled: what every good sampler does."""
    lengths = np.diff(np.load(folder / "sequences.npz")["offsets"])
    order = np.argsort(lengths, kind="stable").tolist()
    found = [order[at : at + SEQUENCE_BATCH] for at in range(0, len(order), SEQUENCE_BATCH)]
    return [found[at] for at in np.random.default_rng(1).permutation(len(found))]


def decode_sound(content: bytes) -> Any:
    return soundfile.read(io.BytesIO(content), dtype="float32")[0]


def decode_photo(content: bytes) -> Any:
    """hotlap's decoder for everybody: the readers are compared, not the decoders."""
    from hotlap.data import Picture

    return Picture(SIZE, MEAN, STD)(memoryview(content))


def hotlap() -> Ways:
    from hotlap.data import Picture, open_shards

    opened = cache(open_shards)  # once for all epochs, as in training

    @cache
    def opened_photos(folder: Path) -> Any:
        return open_shards(folder / "jpeg-packed", decode={"jpg": Picture(SIZE, MEAN, STD)})

    def speech(suffix: str, folder: Path) -> Iterator[Any]:
        data = opened(folder / f"{suffix}-packed")
        for indices in batches(len(data), SPEECH_BATCH):
            yield data.padded(indices)["audio"]

    def photos(folder: Path) -> Iterator[Any]:
        data = opened_photos(folder)
        for indices in batches(len(data), PHOTO_BATCH):
            yield stack([item["image"] for item in data.__getitems__(indices)])

    def windows(folder: Path) -> Iterator[Any]:
        data = opened(folder / "windows-packed")
        for indices in batches(len(data), WINDOW_BATCH):
            yield windows_of(data.gather(indices)["array"])

    def sequences(folder: Path) -> Iterator[Any]:
        data = opened(folder / "sequences-packed")
        for indices in by_length(folder):
            yield data.padded(indices)["tokens"]

    return {
        "wav": [lambda folder: speech("wav", folder)],
        "flac": [lambda folder: speech("flac", folder)],
        "jpeg": [photos],
        "windows": [windows],
        "sequences": [sequences],
    }


class Files(torch.utils.data.Dataset[Any]):
    """Plain files, as most people begin."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.paths = sorted(folder.glob(f"*.{suffix}"))
        self.suffix = suffix

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        if self.suffix == "jpg":
            return decode_photo(self.paths[index].read_bytes())
        return soundfile.read(self.paths[index], dtype="float32")[0]


class Table(torch.utils.data.Dataset[Any]):
    """Rows of a tensor in memory."""

    def __init__(self, folder: Path) -> None:
        self.values = torch.from_numpy(np.load(folder / "windows.npy"))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index]


class BatchTable(Table):
    def __getitems__(self, indices: list[int]) -> Any:
        return self.values[torch.as_tensor(indices)]


class Tokens(torch.utils.data.Dataset[Any]):
    """Flat values and offsets, an item at a time."""

    def __init__(self, folder: Path) -> None:
        stored = np.load(folder / "sequences.npz")
        self.values, self.offsets = torch.from_numpy(stored["values"]), stored["offsets"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        return self.values[self.offsets[index] : self.offsets[index + 1]]


def same(batch: Any) -> Any:
    return batch


def torch_loader() -> Ways:
    from torch.utils.data import DataLoader

    @cache
    def opened(kind: Callable[[Path], Any], folder: Path) -> Any:
        return kind(folder)

    def files(suffix: str, workers: int, folder: Path) -> Iterator[Any]:
        name = "jpeg" if suffix == "jpg" else suffix
        size, collate = (PHOTO_BATCH, stack) if suffix == "jpg" else (SPEECH_BATCH, pad)
        return iter(
            DataLoader(Files(folder / name, suffix), size, True, num_workers=workers, collate_fn=collate)
        )

    def windows(kind: type[Table], folder: Path) -> Iterator[Any]:
        collate = same if kind is BatchTable else torch.stack
        loader = DataLoader(opened(kind, folder), WINDOW_BATCH, shuffle=True, collate_fn=collate)
        return map(windows_of, loader)

    def sequences(folder: Path) -> Iterator[Any]:
        return iter(DataLoader(opened(Tokens, folder), batch_sampler=by_length(folder), collate_fn=pad))

    def both(suffix: str) -> list[Way]:
        return [lambda folder: files(suffix, 0, folder), lambda folder: files(suffix, 2, folder)]

    tables = [lambda folder: windows(Table, folder), lambda folder: windows(BatchTable, folder)]
    return {
        "wav": both("wav"),
        "flac": both("flac"),
        "jpeg": both("jpg"),
        "windows": tables,
        "sequences": [sequences],
    }


def webdataset() -> Ways:
    import webdataset as wds

    def read(name: str, suffix: str, workers: int, folder: Path) -> Iterator[Any]:
        shards = sorted(str(path) for path in (folder / f"{name}-packed").glob("*.tar"))
        decode = decode_photo if suffix == "jpg" else decode_sound
        size, collate = (PHOTO_BATCH, stack) if suffix == "jpg" else (SPEECH_BATCH, pad)
        data = wds.WebDataset(shards, shardshuffle=False).to_tuple(suffix).map(lambda item: decode(item[0]))
        return iter(
            wds.WebLoader(data.batched(size, collation_fn=collate), batch_size=None, num_workers=workers)
        )

    def both(name: str, suffix: str) -> list[Way]:
        return [lambda folder: read(name, suffix, 0, folder), lambda folder: read(name, suffix, 2, folder)]

    return {"wav": both("wav", "wav"), "flac": both("flac", "flac"), "jpeg": both("jpeg", "jpg")}


def spdl() -> Ways:
    from spdl.pipeline import PipelineBuilder

    def read(name: str, suffix: str, folder: Path) -> Iterator[Any]:
        paths = sorted((folder / name).glob(f"*.{suffix}"))
        decode = decode_photo if suffix == "jpg" else decode_sound
        size, collate = (PHOTO_BATCH, stack) if suffix == "jpg" else (SPEECH_BATCH, pad)
        builder = (
            PipelineBuilder().add_source(paths).pipe(lambda path: decode(path.read_bytes()), concurrency=2)
        )
        pipeline = builder.aggregate(size).pipe(collate).add_sink(2).build(num_threads=2)
        with pipeline.auto_stop():
            yield from pipeline

    names = (("wav", "wav"), ("flac", "flac"), ("jpeg", "jpg"))
    return {name: [lambda folder, pair=(name, suffix): read(*pair, folder)] for name, suffix in names}


def grain() -> Ways:
    from grain import python as pygrain

    def windows(folder: Path) -> Iterator[Any]:
        values = np.load(folder / "windows.npy", mmap_mode="r")
        data = pygrain.MapDataset.source(values).shuffle(seed=1).batch(WINDOW_BATCH, drop_remainder=False)
        yield from map(windows_of, data.to_iter_dataset(pygrain.ReadOptions(num_threads=2)))

    def speech(suffix: str, folder: Path) -> Iterator[Any]:
        paths = sorted((folder / suffix).glob(f"*.{suffix}"))
        data = (
            pygrain.MapDataset.source(paths).shuffle(seed=1).map(lambda path: decode_sound(path.read_bytes()))
        )
        yield from data.batch(SPEECH_BATCH, batch_fn=pad).to_iter_dataset(pygrain.ReadOptions(num_threads=2))

    return {
        "wav": [lambda folder: speech("wav", folder)],
        "flac": [lambda folder: speech("flac", folder)],
        "windows": [windows],
    }


def tensordict() -> Ways:
    from tensordict import TensorDict

    @cache
    def opened(folder: Path) -> Any:
        stored = folder / "windows-tensordict"
        if not stored.exists():
            values = torch.from_numpy(np.load(folder / "windows.npy"))
            TensorDict({"x": values}, batch_size=[len(values)]).memmap(str(stored))
        return TensorDict.load_memmap(str(stored))

    def windows(folder: Path) -> Iterator[Any]:
        data = opened(folder)
        for indices in batches(len(data), WINDOW_BATCH):
            yield windows_of(data[torch.as_tensor(indices)]["x"])

    return {"windows": [windows]}


def datasets() -> Ways:
    from datasets import Dataset

    @cache
    def opened(folder: Path) -> Any:
        stored = Dataset.from_parquet(str(folder / "sequences.parquet"), cache_dir=str(folder / "hf-cache"))
        return stored.with_format("numpy")

    def sequences(folder: Path) -> Iterator[Any]:
        data = opened(folder)
        for indices in by_length(folder):
            yield pad([np.asarray(each, dtype=np.int32) for each in data[indices]["tokens"]])

    return {"sequences": [sequences]}


def lhotse() -> Ways:
    from lhotse import Recording

    @cache
    def opened(folder: Path, suffix: str) -> list[Any]:
        return [Recording.from_file(path).to_cut() for path in sorted(folder.glob(f"*.{suffix}"))]

    def speech(suffix: str, folder: Path) -> Iterator[Any]:
        cuts = opened(folder / suffix, suffix)
        for indices in batches(len(cuts), SPEECH_BATCH):
            yield pad([cuts[at].load_audio()[0] for at in indices])

    return {"wav": [lambda folder: speech("wav", folder)], "flac": [lambda folder: speech("flac", folder)]}


def litdata() -> Ways:
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    def stored(folder: Path) -> str:
        target = folder / "litdata-jpeg"
        if not target.exists():
            paths = sorted(str(path) for path in (folder / "jpeg").glob("*.jpg"))
            optimize(_content, paths, str(target), chunk_bytes="64MB", num_workers=1)
        return str(target)

    def photos(workers: int, folder: Path) -> Iterator[Any]:
        data = StreamingDataset(stored(folder), transform=decode_photo)
        return iter(StreamingDataLoader(data, batch_size=PHOTO_BATCH, num_workers=workers, collate_fn=stack))

    return {"jpeg": [lambda folder: photos(0, folder), lambda folder: photos(2, folder)]}


def bound() -> Ways:
    """No reader, but the least that memory asks for: windows gathered from an array, one memmove for each sequence."""

    @cache
    def table(folder: Path) -> torch.Tensor:
        return torch.from_numpy(np.load(folder / "windows.npy"))

    @cache
    def tokens(folder: Path) -> tuple[Any, list[int]]:
        stored = np.load(folder / "sequences.npz")
        return stored["values"], stored["offsets"].tolist()

    def windows(folder: Path) -> Iterator[Any]:
        rows = table(folder)
        for indices in batches(len(rows), WINDOW_BATCH):
            yield windows_of(rows.index_select(0, torch.tensor(indices)))

    def sequences(folder: Path) -> Iterator[Any]:
        values, offsets = tokens(folder)
        begin, each = values.ctypes.data, values.itemsize
        for indices in by_length(folder):
            sizes = [offsets[index + 1] - offsets[index] for index in indices]
            batch = np.empty((len(sizes), max(sizes)), values.dtype)
            row, wide = batch.ctypes.data, batch.strides[0]
            for place, (index, size) in enumerate(zip(indices, sizes, strict=True)):
                ctypes.memmove(row + place * wide, begin + offsets[index] * each, size * each)
            yield batch, sizes

    return {"windows": [windows], "sequences": [sequences]}


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


READERS: dict[str, Callable[[], Ways]] = {
    "hotlap": hotlap,
    "torch": torch_loader,
    "webdataset": webdataset,
    "spdl": spdl,
    "grain": grain,
    "tensordict": tensordict,
    "datasets": datasets,
    "lhotse": lhotse,
    "litdata": litdata,
    "bound": bound,
}
