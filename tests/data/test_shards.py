"""Shards as a dataset: any order, whole batches, workers, patterns, and what other tools wrote or read."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hotlap.data.formats import format_named
from hotlap.data.shards import READERS_KEPT, open_shards
from hotlap.errors import HotlapError
from hotlap.testing.formats import sample_sets, write_shard


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def rows(count: int, start: int = 0) -> list[tuple[str, dict[str, object]]]:
    return [(f"k{at}", {"x": np.full((3, 2), at, np.float32), "y": at}) for at in range(start, start + count)]


@pytest.fixture
def flat(tmp_path):
    for number in range(4):
        write_shard(format_named("flat"), tmp_path, rows(5, 5 * number), number)
    return tmp_path


def test_samples_by_number_over_all_shards(flat):
    data = open_shards(flat)
    assert len(data) == 20 and [data[at]["y"] for at in range(20)] == list(range(20))
    assert data[-1]["y"] == 19 and data.key(7) == "k7"
    assert [each["y"] for each in data.__getitems__([17, 3, 3, 8])] == [17, 3, 3, 8]
    for wrong in (20, -21):
        with pytest.raises(IndexError, match="hold 20"):
            data[wrong]
        with pytest.raises(IndexError, match="hold 20"):
            data.gather([0, wrong])


def test_a_batch_is_gathered_over_shards_in_the_order_asked_for(flat):
    order = np.random.default_rng(0).permutation(20)
    batch = open_shards(flat).gather(order)
    assert batch["y"].tolist() == order.tolist() and batch["x"].shape == (20, 3, 2)
    assert (batch["x"][:, 0, 0] == order).all()
    within = open_shards(flat).gather([7, 5, 6])
    assert within["y"].tolist() == [7, 5, 6]
    one = open_shards(flat / "shard_2.flat")
    assert one.gather([4, -5])["y"].tolist() == [14, 10] and one.gather([]) == {}
    within["x"][:] = -1
    assert open_shards(flat)[5]["x"][0, 0] == 5, "a batch is the caller's own"


def test_samples_of_several_shapes_are_not_gathered(tmp_path):
    write_shard(format_named("flat"), tmp_path, sample_sets()["sequences"])
    data = open_shards(tmp_path)
    with pytest.raises(HotlapError, match="several shapes"):
        data.gather([1, 2])
    order = [4, 0, 19, 4]
    tokens, lengths = data.padded(order, value=-1)["tokens"]
    assert lengths.tolist() == [len(data[at]["tokens"]) for at in order] and tokens.dtype == np.int16
    for row, length, at in zip(tokens, lengths, order, strict=True):
        assert np.array_equal(row[:length], data[at]["tokens"]) and (row[length:] == -1).all()
    assert data.padded(order)["sets"][0].shape == (4, lengths.max(), 2, 3)


def test_torch_loads_it_with_workers_and_without_a_warning(flat):
    data = open_shards(flat)
    data[0]  # opened here, opened again there
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for workers in (0, 2):
            batches = list(DataLoader(data, batch_size=8, num_workers=workers))
            assert torch.cat([each["y"] for each in batches]).tolist() == list(range(20))
            assert torch.cat([each["x"] for each in batches])[:, 0, 0].tolist() == list(range(20))
    assert pickle.loads(pickle.dumps(data))[13]["y"] == 13


@pytest.mark.parametrize("pattern", ["shard_{1..3}.tar", "shard__OP_1..3_CL_.tar"])
def test_patterns_name_shards(tmp_path, pattern):
    for number in range(5):
        write_shard(format_named("tar"), tmp_path, rows(2, 10 * number), number)
    data = open_shards(tmp_path / pattern)
    assert [data[at]["y"] for at in range(6)] == [10, 11, 20, 21, 30, 31]
    assert len(open_shards(tmp_path / "shard_4.tar")) == 2 and len(open_shards(tmp_path)) == 10
    with pytest.raises(HotlapError, match="there is no shard"):
        open_shards(tmp_path / "shard_{3..9}.tar")


def test_many_shards_hold_few_files_open(tmp_path):
    count = READERS_KEPT + 40
    for number in range(count):
        write_shard(format_named("tar"), tmp_path, rows(1, number), number)
    data = open_shards(tmp_path)
    before = open_files()
    assert [data[at]["y"] for at in range(count)] == list(range(count)), "in the order of their numbers"
    assert open_files() <= before + READERS_KEPT


def test_what_is_no_shard_is_refused(tmp_path):
    with pytest.raises(HotlapError, match=r"no pack\.json and no shards"):
        open_shards(tmp_path)
    (tmp_path / "x.zip").write_bytes(b"")
    with pytest.raises(HotlapError, match=r"no shard that hotlap reads.\n.*\.flat, \.parquet, \.tar"):
        open_shards(tmp_path / "x.zip")
    (tmp_path / "x.tar").write_bytes(b"not a tar at all" * 100)
    with pytest.raises(HotlapError, match="cannot be read as a tar"):
        open_shards(tmp_path / "x.tar")
    (tmp_path / "x.flat").write_bytes(b"not flat at all" * 100)
    with pytest.raises(HotlapError, match="is damaged"):
        open_shards(tmp_path / "x.flat")


def webdataset(code: str, folder: Path) -> str:
    """In a process of its own: it leaves files open, which is an error here."""
    command = [sys.executable, "-c", f"import json, sys, webdataset\n{code}", str(folder)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_webdataset_reads_what_hotlap_writes(tmp_path):
    samples = [
        (f"s{at}", {"x": np.arange(at, dtype=np.int16), "jpg": b"no picture", "label": at, "text": "ä"})
        for at in range(6)
    ]
    for number in range(2):
        write_shard(format_named("tar"), tmp_path, samples[3 * number : 3 * number + 3], number)
    code = """
for each in webdataset.WebDataset(sys.argv[1] + "/shard_{0..1}.tar", shardshuffle=False).decode():
    array = each["x.npy"]
    print(json.dumps([each["__key__"], array.tolist(), str(array.dtype), each["jpg"].decode(), each["json"]]))
"""
    found = [json.loads(line) for line in webdataset(code, tmp_path).splitlines()]
    assert found == [
        [key, ours["x"].tolist(), "int16", "no picture", {"label": ours["label"], "text": "ä"}]
        for key, ours in samples
    ]


def test_hotlap_reads_what_webdataset_writes(tmp_path):
    code = """
with webdataset.TarWriter(sys.argv[1] + "/a.tar") as writer:
    for at in range(3):
        writer.write({"__key__": f"dir/s{at}", "txt": f"line {at}", "cls": at, "json": {"a": [at]}, "bin": b"??"})
"""
    webdataset(code, tmp_path)
    data = open_shards(tmp_path / "a.tar")
    assert data[2] == {"txt": "line 2", "cls": 2, "a": [2], "bin": b"??"} and data.key(1) == "dir/s1"


def test_nemo_finds_every_sound_of_the_manifest_in_its_tar(tmp_path):
    """As NeMo's readers do: every member is in the manifest under its shard, and nothing else is in the tar."""
    nemo = format_named("nemo")
    sounds = sample_sets()["sound"]
    names = [write_shard(nemo, tmp_path, sounds[12 * at :][:12], at).name for at in range(2)]
    for name, text in nemo.together(tmp_path, names).items():
        (tmp_path / name).write_text(text)
    lines = [json.loads(line) for line in (tmp_path / "tarred_audio_manifest.json").read_text().splitlines()]
    for shard in range(2):
        with tarfile.open(tmp_path / f"audio_{shard}.tar") as tar:
            members = tar.getnames()
        assert members == [line["audio_filepath"] for line in lines if line["shard_id"] == shard]
        assert all("/" not in each and each.count(".") == 1 for each in members)
    assert nemo.hints(tmp_path, names)["tarred_audio_filepaths"] == f"{tmp_path}/audio__OP_0..1_CL_.tar"
    for piece in (tmp_path / "sharded_manifests").iterdir():
        piece.unlink()  # NeMo's own script need not write these
    raw = open_shards(tmp_path / "audio__OP_0..1_CL_.tar", decode=False)
    assert raw[14] == sounds[14][1]


def test_a_changed_tar_is_scanned_again(tmp_path):
    path = write_shard(format_named("tar"), tmp_path, rows(4))
    stamp = path.stat().st_mtime_ns
    assert len(open_shards(path)) == 4
    index = tmp_path / "shard_0.tar.index"
    scanned = index.stat().st_ino
    assert len(open_shards(path)) == 4 and index.stat().st_ino == scanned, "built once"
    other = write_shard(format_named("tar"), tmp_path, rows(4, 50), 1)
    path.write_bytes(other.read_bytes())  # the same size, other keys
    assert open_shards(path).key(0) == "k50" and index.stat().st_ino != scanned
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo("added.json")
        info.size = 8
        tar.addfile(info, io.BytesIO(b'{"y": 9}'))
    os.utime(path, ns=(stamp, stamp))  # an old time does not hide it
    assert open_shards(path)[4] == {"y": 9}
    index.write_bytes(b"garbage")
    assert len(open_shards(path)) == 5


def test_a_cut_off_tar_is_refused(tmp_path):
    path = write_shard(
        format_named("tar"), tmp_path, [("a", {"bin": bytes(5000)}), ("b", {"bin": bytes(5000)})]
    )
    path.write_bytes(path.read_bytes()[:7000])
    with pytest.raises(HotlapError, match=r"shard_0.tar (is cut off|cannot be read)"):
        open_shards(path)
