"""Reads pieces of sounds out of files and tar shards. What cannot be read is a ClipError: one clip, not the run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from hotlap.data import Audio
from hotlap.data.samples import SampleError
from hotlap.data.tarshards import MappedTar
from hotlap_recipes.nest import BadInputError
from hotlap_recipes.nest.manifest import Entry, Fault

Samples = NDArray[np.float32]


class ClipError(Exception):
    """`fault` says why this clip cannot be used."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Files:
    """Sounds in files of their own. No more is read than the manifest says, however long the file is."""

    def __init__(self, sample_rate: int) -> None:
        self.rate = sample_rate

    def read(self, entry: Entry) -> Samples:
        if not Path(entry.path).is_file():  # a pipe or a device would be waited for
            raise ClipError(Fault(entry.path, "missing"))
        try:
            with soundfile.SoundFile(entry.path) as file:
                if file.samplerate != self.rate:
                    detail = f"{file.samplerate} Hz, not {self.rate}"
                    raise ClipError(Fault(entry.path, "of another sample rate", detail))
                file.seek(min(round(entry.offset * self.rate), file.frames))
                samples: Samples = file.read(round(entry.duration * self.rate), dtype="float32")
        except (OSError, soundfile.LibsndfileError) as error:
            raise ClipError(Fault(entry.path, "unreadable", str(error))) from None
        return checked(samples, entry)


class Shards:
    """Sounds in tar files, mapped into memory and found by name. Each process maps them for itself."""

    def __init__(self, patterns: Sequence[str], sample_rate: int) -> None:
        self.paths = [path for pattern in patterns for path in expanded(pattern)]
        if not self.paths:
            raise BadInputError(
                "model.train_ds.is_tarred is true and tarred_audio_filepaths names nothing.",
                "give it, say audio__OP_0..7_CL_.tar.",
            )
        self._audio = Audio(sample_rate=sample_rate)
        self._mapped: tuple[int, dict[int, MappedTar]] = (-1, {})
        self.torn: dict[int, str] = {}
        self._places: dict[str, tuple[int, int]] = {}
        for number, path in enumerate(self.paths):
            self._index(number, path)

    @property
    def names(self) -> Iterable[str]:
        return self._places.keys()

    def fault(self, entry: Entry) -> Fault | None:
        """Known before training: the shard cannot be opened, or the clip is not in it."""
        if key_of(entry.path) in self._places:
            return None
        if entry.shard in self.torn:
            return Fault(entry.path, "in a torn shard", self.torn[entry.shard])
        return Fault(entry.path, "not in the shards")

    def read(self, entry: Entry) -> Samples:
        shard, row = self._places[key_of(entry.path)]
        try:
            (content,) = self._tar(shard).files(row).values()
            samples = self._audio(content)
        except (SampleError, OSError, ValueError) as error:
            raise ClipError(Fault(entry.path, "unreadable", str(error).partition("\n")[0])) from None
        rate = self._audio.sample_rate or 0
        start = round(entry.offset * rate)
        return checked(samples[start : start + round(entry.duration * rate)], entry)

    def _index(self, number: int, path: Path) -> None:
        if not path.is_file():
            raise BadInputError(f"there is no shard {path}.", "check tarred_audio_filepaths.")
        try:
            index = self._tar(number).index
        except (SampleError, OSError, ValueError) as error:
            self.torn[shard_id(path)] = str(error).partition("\n")[0]
            return
        self._places |= {key_of(index.key(row)): (number, row) for row in range(len(index))}

    def _tar(self, number: int) -> MappedTar:
        if self._mapped[0] != os.getpid():
            self._mapped = (os.getpid(), {})
        tars = self._mapped[1]
        if number not in tars:
            tars[number] = MappedTar(self.paths[number])
        return tars[number]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_mapped": (-1, {})}


def checked(samples: Samples, entry: Entry) -> Samples:
    """One channel of finite numbers, and not nothing."""
    if samples.ndim > 1:
        samples = samples.mean(axis=1, dtype=np.float32)
    if not len(samples):
        raise ClipError(Fault(entry.path, "empty"))
    if not np.isfinite(samples).all():
        raise ClipError(Fault(entry.path, "not finite"))
    return samples


def expanded(pattern: str) -> list[Path]:
    """`audio__OP_0..7_CL_.tar`, as NeMo writes it, and `audio_{0..7}.tar` name eight files."""
    found = re.search(r"(?:\{|_OP_)(\d+)\.\.(\d+)(?:\}|_CL_)", pattern)
    if found is None:
        return [Path(pattern)]
    head, tail = pattern[: found.start()], pattern[found.end() :]
    return [Path(f"{head}{number}{tail}") for number in range(int(found[1]), int(found[2]) + 1)]


def shard_id(path: Path) -> int:
    found = re.search(r"(\d+)$", path.stem)
    return int(found[1]) if found else 0


def key_of(name: str) -> str:
    """Up to the first dot, as webdataset and NeMo cut names."""
    return Path(name).name.partition(".")[0]
