"""Clips with their noise, for a DataLoader, and the batches that are made of them.

What is random of a clip follows from the seed, the epoch and the clip alone, whichever process loads it and in
whichever batch: a run that is resumed in mid-epoch goes on as if it had not ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from hotlap_recipes.nest.manifest import Entry, Fault
from hotlap_recipes.nest.sounds import ClipError, Files, Samples

TRIES = 10  # bad clips of like length in a row, after which the data are at fault and not the clip
IN_A_ROW = "followed by bad clips only"


class Source(Protocol):
    def read(self, entry: Entry) -> Samples: ...


@dataclass(frozen=True)
class Clip:
    """`noise` is there where it will be mixed in. `draw` seeds what the batch decides for this clip."""

    audio: Samples
    noise: Samples | None
    mixed: bool
    draw: tuple[int, ...]
    faults: tuple[Fault, ...]


class Batch(NamedTuple):
    """Clips padded with zeros; `faults` of clips that were replaced on the way."""

    audio: Tensor
    lengths: Tensor
    noisy: Tensor
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Mixing:
    """How clips are disturbed; names and meaning as in NeMo's MultiSpeakerNoiseAugmentation."""

    prob: float = 0.0
    noise_ratio: float = 0.0
    min_r_speech: float = -5.0
    max_r_speech: float = 5.0
    min_r_noise: float = -5.0
    max_r_noise: float = 20.0
    min_mix_rate: float = 0.0
    max_mix_rate: float = 1.0
    min_num_segments: int = 1
    max_num_segments: int = 5
    min_num_speakers: int = 1
    max_num_speakers: int = 4

    @classmethod
    def of(cls, config: Any) -> Mixing:
        names = {name for name in config or {} if not name.startswith("_")}
        return cls(**{name: config[name] for name in names})


class Clips(Dataset[Clip]):
    def __init__(
        self,
        entries: Sequence[Entry],
        source: Source,
        noises: Sequence[Entry],
        mixing: Mixing,
        sample_rate: int,
        shortest: float,
        seed: int,
    ) -> None:
        self.entries, self.noises = entries, noises
        self.lengths = [round(entry.duration * sample_rate) for entry in entries]
        self._source, self._noise_source = source, Files(sample_rate)
        self._mixing, self._seed = mixing, seed
        self._least = round(shortest * sample_rate)
        self._by_length = np.argsort(self.lengths, kind="stable")
        self._rank_of = np.argsort(self._by_length, kind="stable")
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.entries)

    def set_epoch(self, epoch: int) -> None:
        """Shared with workers that live on from epoch to epoch."""
        self._epoch.fill_(epoch)

    def __getitem__(self, index: int) -> Clip:
        draw = (self._seed, int(self._epoch), int(index))
        rng = np.random.default_rng(draw)
        mixed = bool(rng.random() < self._mixing.prob)
        by_noise = mixed and bool(rng.random() < self._mixing.noise_ratio)
        audio, faults = self._readable(index)
        noise = None
        if by_noise:
            noise, noise_faults = self._noise(len(audio), rng)
            faults += noise_faults
        return Clip(audio, noise, mixed and (noise is not None or not by_noise), draw, faults)

    def _readable(self, index: int) -> tuple[Samples, tuple[Fault, ...]]:
        """The clip, or in place of a bad one the next shorter: batches keep their size, on every rank."""
        faults: tuple[Fault, ...] = ()
        rank = int(self._rank_of[index])
        near = [*range(rank, max(rank - TRIES, -1), -1), *range(rank + 1, min(rank + TRIES, len(self)))]
        for place in near[:TRIES]:
            entry = self.entries[int(self._by_length[place])]
            try:
                audio = self._source.read(entry)
                if len(audio) < self._least:
                    seconds = f"{entry.duration:g} s are stated"
                    raise ClipError(Fault(entry.path, "shorter than the shortest allowed", seconds))
                return audio, faults
            except ClipError as error:
                faults += (error.fault,)
        # The main process stops at this; raised here, in a worker, its words would drown in a traceback.
        silence = np.zeros(max(self._least, 1), np.float32)
        return silence, (*faults, Fault(self.entries[index].path, IN_A_ROW, f"{len(faults)} clips"))

    def _noise(self, length: int, rng: np.random.Generator) -> tuple[Samples | None, tuple[Fault, ...]]:
        """A piece of noise as long as what it is mixed into, read only where it is needed."""
        if not self.noises:
            return None, ()
        entry = self.noises[int(rng.integers(len(self.noises)))]
        seconds = min(length / self._noise_source.rate, entry.duration)
        piece = Entry(entry.path, entry.offset + (entry.duration - seconds) * rng.random(), seconds)
        try:
            return self._noise_source.read(piece), ()
        except ClipError as error:
            return None, (error.fault,)


class Collate:
    """Pads clips to the longest and mixes disturbances into copies of them."""

    def __init__(self, mixing: Mixing) -> None:
        self._mixing = mixing

    def __call__(self, clips: Sequence[Clip]) -> Batch:
        lengths = [len(clip.audio) for clip in clips]
        audio = np.zeros((len(clips), max(lengths)), np.float32)
        for row, clip in zip(audio, clips, strict=True):
            row[: len(clip.audio)] = clip.audio
        noisy = audio.copy()
        for number, clip in enumerate(clips):
            if clip.mixed:
                noisy[number, : lengths[number]] += self._disturbance(number, clips)
        faults = tuple(fault for clip in clips for fault in clip.faults)
        return Batch(torch.from_numpy(audio), torch.tensor(lengths), torch.from_numpy(noisy), faults)

    def _disturbance(self, number: int, clips: Sequence[Clip]) -> Samples:
        """Segments of noise, or of other clips of the batch, at the drawn ratio of energies over the whole clip."""
        mixing, clip = self._mixing, clips[number]
        rng = np.random.default_rng((*clip.draw, 1))
        length = max(1, int(len(clip.audio) * rng.uniform(mixing.min_mix_rate, mixing.max_mix_rate)))
        parts = int(rng.integers(mixing.min_num_segments, mixing.max_num_segments, endpoint=True))
        sizes = rng.multinomial(length, [1 / parts] * parts)
        signal = np.zeros(len(clip.audio), np.float32)
        donors = self._donors(number, clips, rng)
        if not donors:
            return signal
        low, high = _decibels(mixing, by_noise=clip.noise is not None)
        spare, at = len(clip.audio) - length, 0
        for turn, size in enumerate(sizes):
            skipped = int(rng.integers(spare, endpoint=True))
            spare, at = spare - skipped, at + skipped
            signal[at : at + size] = _piece(donors[turn % len(donors)], int(size), rng)
            at += int(size)
        own, other = float(np.square(clip.audio).mean()), float(np.square(signal).mean())
        ratio = 10 ** (rng.uniform(low, high) / 10)
        return signal * np.float32(np.sqrt(own / (ratio * other)) if other > 0 else 0.0)

    def _donors(self, number: int, clips: Sequence[Clip], rng: np.random.Generator) -> list[Samples]:
        noise = clips[number].noise
        if noise is not None:
            return [noise]
        others = [clip.audio for at, clip in enumerate(clips) if at != number]
        most = int(rng.integers(self._mixing.min_num_speakers, self._mixing.max_num_speakers, endpoint=True))
        return [others[at] for at in rng.permutation(len(others))[:most]]


def _decibels(mixing: Mixing, by_noise: bool) -> tuple[float, float]:
    if by_noise:
        return mixing.min_r_noise, mixing.max_r_noise
    return mixing.min_r_speech, mixing.max_r_speech


def _piece(samples: Samples, size: int, rng: np.random.Generator) -> Samples:
    """`size` samples from anywhere; what is shorter is repeated."""
    if len(samples) <= size:
        return np.resize(samples, size)
    start = int(rng.integers(len(samples) - size, endpoint=True))
    return samples[start : start + size]
