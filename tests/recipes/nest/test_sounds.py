"""Reading clips: no more than was asked for, and a reason where that fails. Nothing is waited for."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest
import soundfile

from hotlap_recipes.nest import BadInputError
from hotlap_recipes.nest.manifest import Entry
from hotlap_recipes.nest.sounds import ClipError, Files, Shards, expanded

RATE = 16000


@pytest.fixture
def ramp(tmp_path):
    """One second, whose samples are their own numbers."""
    path = tmp_path / "ramp.wav"
    soundfile.write(path, np.arange(RATE, dtype=np.int16), RATE)
    return path


def kind_of(path, read=None):
    with pytest.raises(ClipError) as error:
        (read or Files(RATE).read)(Entry(str(path), 0.0, 1.0))
    return error.value.fault.kind


def test_a_piece_is_what_the_manifest_says(ramp):
    samples = Files(RATE).read(Entry(str(ramp), 0.25, 0.5))
    assert samples.dtype == np.float32
    assert np.array_equal(samples * 32768, np.arange(4000, 12000))


def test_channels_become_one(tmp_path):
    soundfile.write(tmp_path / "two.wav", np.tile([[0.5, -0.25]], (RATE, 1)), RATE)
    assert np.allclose(Files(RATE).read(Entry(str(tmp_path / "two.wav"), 0.0, 1.0)), 0.125)


def test_what_cannot_be_used_has_a_reason(tmp_path, ramp):
    (tmp_path / "text.wav").write_text("no sound")
    (tmp_path / "zero.wav").touch()
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    soundfile.write(tmp_path / "slow.wav", np.zeros(8000), 8000)
    soundfile.write(tmp_path / "nan.wav", np.full(RATE, np.nan), RATE, subtype="FLOAT")
    os.mkfifo(tmp_path / "pipe.wav")
    kinds = {path.stem: kind_of(path) for path in tmp_path.iterdir() if path != ramp}
    assert kinds == {
        "text": "unreadable",
        "zero": "unreadable",
        "empty": "empty",
        "slow": "of another sample rate",
        "nan": "not finite",
        "pipe": "missing",
    }
    assert kind_of(tmp_path / "gone.wav") == "missing"


def test_ten_hours_are_not_read_for_one_second(tmp_path):
    size = 10 * 3600 * RATE * 2
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        size + 36,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        RATE,
        2 * RATE,
        2,
        16,
        b"data",
        size,
    )
    path = tmp_path / "long.wav"
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size + len(header))  # a hole: nothing is stored
    assert len(Files(RATE).read(Entry(str(path), 3600.0, 1.0))) == RATE


def test_clips_in_shards_are_those_of_the_files(speech, packed):
    shards = Shards([f"{packed}/audio__OP_0..2_CL_.tar"], RATE)
    names = sorted(path.name for path in (speech / "train").iterdir())
    stored = sorted(name for name in shards.names)
    assert len(stored) == len(names) == 27
    first = Entry(f"{stored[0]}.wav", 0.5, 0.5)
    direct = Files(RATE).read(Entry(str(speech / "train" / names[0]), 0.5, 0.5))
    assert np.array_equal(shards.read(first), direct)
    assert shards.fault(Entry("other.wav", 0.0, 1.0, 1)).kind == "not in the shards"


def test_a_torn_shard_loses_its_clips_and_no_others(packed):
    torn = packed / "audio_1.tar"
    os.truncate(torn, torn.stat().st_size // 2)
    shards = Shards([f"{packed}/audio_{{0..2}}.tar"], RATE)
    lines = (packed / "tarred_audio_manifest.json").read_text().splitlines()
    others = [line for line in map(json.loads, lines) if line["shard_id"] != 1]
    assert 10 < len(others) < 27
    assert set(shards.names) == {line["audio_filepath"].partition(".")[0] for line in others}
    assert set(shards.torn) == {1}
    assert shards.fault(Entry("x.wav", 0.0, 1.0, 1)).kind == "in a torn shard"
    torn.unlink()
    with pytest.raises(BadInputError, match=r"there is no shard .*audio_1\.tar"):
        Shards([f"{packed}/audio_{{0..2}}.tar"], RATE)


def test_a_clip_that_is_damaged_within_its_shard_is_one_fault(packed):
    shards = Shards([f"{packed}/audio_0.tar"], RATE)
    name = next(iter(shards.names))
    with (packed / "audio_0.tar").open("r+b") as file:
        file.seek(512)
        file.write(b"damaged!")
    assert kind_of(f"{name}.wav", shards.read) == "unreadable"


def test_patterns_name_their_files():
    assert [path.name for path in expanded("a/x__OP_0..2_CL_.tar")] == ["x_0.tar", "x_1.tar", "x_2.tar"]
    assert [path.name for path in expanded("x_{9..10}.tar")] == ["x_9.tar", "x_10.tar"]
    assert [path.name for path in expanded("x.tar")] == ["x.tar"]
