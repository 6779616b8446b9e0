"""`verify` finds every flipped byte and names the shard, and the sample that holds it."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from hotlap.data.pack.run import verify
from hotlap.data.shards import open_shards
from hotlap.errors import HotlapError


def flip(path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("form", ["nemo", "tar", "flat", "parquet"])
def test_a_flipped_byte_of_a_sample_is_named_with_shard_and_sample(speech, tmp_path, packed, form):
    lines = (speech / "train_manifest.json").read_text().splitlines()
    (speech / "train_manifest.json").write_text("\n".join(line for line in lines[:24] if ".wav" in line))
    out = tmp_path / "out"
    packed(speech, out, format=form, shards=3)
    assert verify(out).damage == ()
    data = open_shards(out, decode=False)
    victim = 11
    sound = data[victim]["wav"]
    (shard,) = [each for each in data.shards if sound in each.read_bytes()]
    flip(shard, shard.read_bytes().index(sound) + 100)
    (damage,) = verify(out).damage
    assert damage.file == shard.name and "other bytes" in damage.what
    assert data.key(victim) in damage.samples
    if form != "parquet":  # which reads a whole row group or nothing
        assert damage.samples == (data.key(victim),) and damage.count == 1


def test_no_flip_anywhere_goes_unseen(speech, tmp_path, packed):
    packed(speech, tmp_path / "out", format="nemo", shards=2)
    draw = random.Random(3)
    for round_ in range(12):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "out", tmp_path / "copy")
        files = sorted(each for each in (tmp_path / "copy").rglob("*") if each.is_file())
        path = files[round_ % len(files)]
        flip(path, draw.randrange(path.stat().st_size))
        try:
            names = [each.file for each in verify(tmp_path / "copy").damage]
        except HotlapError as error:
            assert path.name == "pack.json" and "pack.json" in str(error)
        else:
            assert str(path.relative_to(tmp_path / "copy")) in names


def test_a_copy_without_times_is_intact(speech, tmp_path, packed):
    packed(speech, tmp_path / "out", format="tar", shards=2)
    shutil.copytree(tmp_path / "out", tmp_path / "copy", copy_function=shutil.copyfile)
    assert np.array_equal(
        open_shards(tmp_path / "copy")[5]["audio"], open_shards(tmp_path / "out")[5]["audio"]
    )
    assert verify(tmp_path / "copy").damage == ()


def test_damage_beside_the_samples_is_told_apart(speech, tmp_path, packed):
    packed(speech, tmp_path / "out", format="tar", shards=3)
    names = {each: tmp_path / "out" / f"shard_{each}.tar" for each in range(3)}
    flip(names[0], 120)  # in the head of its first file
    names[1].unlink()
    names[2].write_bytes(names[2].read_bytes()[:-3000])
    first, second, third = verify(tmp_path / "out").damage
    assert (first.file, first.samples) == ("shard_0.tar", ()) and "outside of every sample" in first.what
    assert (second.file, second.what) == ("shard_1.tar", "is missing")
    assert third.file == "shard_2.tar" and "bytes, not" in third.what


def test_a_folder_that_was_not_finished_is_no_pack(tmp_path):
    (tmp_path / "shard_0.tar").write_bytes(b"")
    with pytest.raises(HotlapError, match=r"holds no pack\.json"):
        verify(tmp_path)
