"""Clips and batches: what is random follows from seed, epoch and clip; noise has its ratio; bad clips are replaced."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotlap_recipes.nest.dataset import IN_A_ROW, Clips, Collate, Mixing
from hotlap_recipes.nest.manifest import Entry, Fault, read_manifests
from hotlap_recipes.nest.sounds import ClipError, Files

RATE = 16000
NOISY = Mixing(prob=1.0, noise_ratio=1.0, min_r_noise=10, max_r_noise=10, min_mix_rate=0.5, max_mix_rate=0.5,
               max_num_segments=1)  # fmt: skip


@pytest.fixture
def clips_with(speech):
    entries = read_manifests([str(speech / "train_manifest.json")], 1.0, 60.0).entries
    noises = read_manifests([str(speech / "noise_manifest.json")], 0.0, 60.0).entries

    def build(mixing: Mixing, source=None, seed: int = 0) -> Clips:
        return Clips(entries, source or Files(RATE), noises, mixing, RATE, 1.0, seed)

    return build


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))


def test_a_batch_is_padded_and_what_is_not_disturbed_is_clean(clips_with):
    clips = clips_with(Mixing())
    batch = Collate(Mixing())([clips[index] for index in range(4)])
    assert batch.lengths.tolist() == clips.lengths[:4]
    assert batch.audio.shape == (4, max(clips.lengths[:4]))
    assert torch.equal(batch.audio, batch.noisy)
    for row, length, index in zip(batch.audio, batch.lengths, range(4), strict=True):
        assert np.array_equal(row[:length], Files(RATE).read(clips.entries[index]))
        assert not row[length:].any()


def test_noise_covers_half_of_a_clip_at_its_ratio(clips_with):
    clips = clips_with(NOISY)
    batch = Collate(NOISY)([clips[index] for index in range(8)])
    for audio, noisy, length in zip(batch.audio, batch.noisy, batch.lengths, strict=True):
        added = (noisy - audio)[:length]
        assert not (noisy - audio)[length:].any()
        share = float(added.ne(0).float().mean())
        assert 0.4 < share <= 0.5 + 1e-3
        decibels = 10 * torch.log10(audio[:length].square().mean() / added.square().mean())
        assert abs(float(decibels) - 10) < 0.05


def test_speech_disturbs_speech_at_its_ratio_in_several_segments(clips_with):
    mixing = Mixing(prob=1.0, noise_ratio=0.0, min_r_speech=3, max_r_speech=3, min_mix_rate=0.4, max_mix_rate=0.4,
                    min_num_segments=3, max_num_segments=3, min_num_speakers=2, max_num_speakers=2)  # fmt: skip
    clips = clips_with(mixing)
    batch = Collate(mixing)([clips[index] for index in range(6)])
    for audio, noisy, length in zip(batch.audio, batch.noisy, batch.lengths, strict=True):
        added = (noisy - audio)[:length]
        assert added.abs().gt(1e-9).float().mean() < 0.41
        decibels = 10 * torch.log10(audio[:length].square().mean() / added.square().mean())
        assert abs(float(decibels) - 3) < 0.05
    alone = Collate(mixing)([clips[0]])
    assert torch.equal(alone.audio, alone.noisy), "there is nobody else"


def test_noise_is_read_only_where_it_is_used(clips_with, monkeypatch):
    mixing = Mixing(prob=0.5, noise_ratio=0.5)
    clips = clips_with(mixing)
    reads = []
    original = Files.read
    monkeypatch.setattr(Files, "read", lambda self, entry: reads.append(entry.path) or original(self, entry))
    with_noise = sum(clips[index].noise is not None for index in range(len(clips)))
    assert 0 < with_noise < len(clips) / 2
    assert sum("noise" in path for path in reads) == with_noise
    assert len(reads) == len(clips) + with_noise


def test_what_is_drawn_follows_from_seed_epoch_and_clip(clips_with):
    collate = Collate(NOISY)
    clips, again, other = clips_with(NOISY), clips_with(NOISY), clips_with(NOISY, seed=1)
    first = collate([clips[3], clips[5]])
    again[1], again[2]
    assert same(first, collate([again[3], again[5]])), "whatever was read before"
    assert not same(first, collate([other[3], other[5]]))
    clips.set_epoch(1)
    assert not same(first, collate([clips[3], clips[5]]))
    clips.set_epoch(0)
    assert same(first, collate([clips[3], clips[5]]))


def test_workers_that_live_on_hear_of_the_next_epoch(clips_with):
    clips = clips_with(NOISY)
    loader = torch.utils.data.DataLoader(
        clips, batch_size=2, sampler=[0, 1], num_workers=1, persistent_workers=True, collate_fn=Collate(NOISY)
    )
    (first,) = loader
    clips.set_epoch(1)
    (second,) = loader
    assert not same(first, second)
    assert same(second, Collate(NOISY)([clips[0], clips[1]]))


class Bad:
    """A source of which some clips cannot be read."""

    def __init__(self, bad) -> None:
        self._bad, self._files = bad, Files(RATE)

    def read(self, entry: Entry):
        if entry.path in self._bad:
            raise ClipError(Fault(entry.path, "missing"))
        return self._files.read(entry)


def test_a_bad_clip_is_replaced_by_one_of_like_length_and_named(clips_with):
    paths = [entry.path for entry in clips_with(Mixing()).entries]
    clips = clips_with(Mixing(), Bad({paths[4]}))
    found = clips[4]
    assert [fault.where for fault in found.faults] == [paths[4]]
    assert len(found.audio) == max(length for length in clips.lengths if length < clips.lengths[4])
    shortest = int(np.argmin(clips.lengths))
    found = clips_with(Mixing(), Bad({paths[shortest]}))[shortest]
    assert len(found.audio) == sorted(clips.lengths)[1], "nothing is shorter"
    batch = Collate(Mixing())([clips[4], clips[5]])
    assert len(batch.lengths) == 2 and len(batch.faults) == 1


def test_bad_clips_only_end_and_say_so(clips_with):
    paths = {entry.path for entry in clips_with(Mixing()).entries}
    faults = clips_with(Mixing(), Bad(paths))[0].faults
    assert len(faults) == 11 and faults[-1].kind == IN_A_ROW
