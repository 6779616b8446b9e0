"""Every kind of source comes back from its shards as it was."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch
from scipy.io import savemat

from hotlap.data.pack.source import unique_keys
from hotlap.data.pack.sources import natural_format, open_source
from hotlap.data.shards import open_shards
from hotlap.errors import HotlapError

TRAIN_SET = """
import torch
from PIL import Image

class TrainSet:
    def __init__(self, count, scale=1.0, name="x"):
        self.count, self.scale, self.name = count, scale, name
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        torch.manual_seed(index)
        x = torch.rand(4, 3) * self.scale
        picture = Image.new("RGB", (3, 2), (index, 2, 3))
        return {"x": x, "pair": (index, [x.numpy().sum(), "a"]), "name": self.name, "picture": picture}

class Random(TrainSet):
    def __getitem__(self, index):
        return torch.randn(3)

class ByEpoch(TrainSet):
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __getitem__(self, index):
        return torch.tensor([index, self.epoch])

class Strange(TrainSet):
    def __getitem__(self, index):
        return {"x": object()}

class Ragged(TrainSet):
    def __getitem__(self, index):
        return (1, 2) if index == 5 else (1,)

class Fails(TrainSet):
    def __getitem__(self, index):
        if index == 6:
            raise KeyError("label")
        return index
"""


@pytest.mark.parametrize("form", ["nemo", "tar", "flat", "parquet"])
def test_speech_with_a_manifest(speech, tmp_path, packed, form):
    if form in ("flat", "parquet"):  # their fields are the same in every sample
        lines = (speech / "train_manifest.json").read_text().splitlines()
        kept = [line for line in lines if ".wav" in line]
        (speech / "train_manifest.json").write_text("\n".join(kept))
    entries = [json.loads(line) for line in (speech / "train_manifest.json").read_text().splitlines()]
    seal = packed(speech, tmp_path / "out", format=form, shards=3).seal
    data = open_shards(tmp_path / "out")
    assert seal.samples == len(data) == len(entries) and len(seal.shards) == 3
    for at, entry in enumerate(entries):
        start = round(entry.get("offset", 0) * 16000)
        frames = round(entry["duration"] * 16000)
        wanted, _ = soundfile.read(
            speech / entry["audio_filepath"], dtype="float32", start=start, frames=frames
        )
        assert np.array_equal(data[at]["audio"], wanted), entry
        assert (data[at]["text"], data[at]["duration"]) == (entry["text"], entry["duration"])


def test_a_manifest_may_lack_durations_and_name_other_folders(speech, tmp_path, packed):
    frames = soundfile.info(speech / "clips/s.1.wav").frames
    other = tmp_path / "lists" / "my.jsonl"
    other.parent.mkdir()
    other.write_text(json.dumps({"audio_filepath": str(speech / "clips/s.1.wav")}) + "\n\n")
    packed(other, tmp_path / "out", format="nemo")
    assert open_shards(tmp_path / "out")[0]["duration"] == round(frames / 16000, 6)


def test_pictures_in_folders_are_mixed_and_labelled(pictures, tmp_path, packed):
    packed(pictures, tmp_path / "out", shards=2)
    raw = open_shards(tmp_path / "out", decode=False)
    labels = [raw[at]["label"] for at in range(18)]
    assert sorted(labels) == [0] * 6 + [1] * 6 + [2] * 6 and labels != sorted(labels)
    for at in range(18):
        item = raw[at]
        assert item["jpg"] == (pictures / item["path"]).read_bytes()
        assert item["class"] == ["cat", "dog", "eel"][item["label"]]
    assert open_shards(tmp_path / "out")[0]["image"].shape == (24, 40, 3)


def test_a_driving_tree_gives_a_sample_for_each_key_frame(driving, tmp_path, packed):
    assert natural_format(str(driving), changed=False) == "tar"
    packed(driving, tmp_path / "out")
    data = open_shards(tmp_path / "out", decode=False)
    assert [data.key(at) for at in range(3)] == ["frame2", "frame1", "frame0"], "in the order of time"
    frame = data[1]
    assert frame["CAM_BACK.jpg"] == (driving / "samples/CAM_BACK/1-True.jpg").read_bytes()
    assert frame["LIDAR_TOP.bin"] == (driving / "samples/LIDAR_TOP/1-True.pcd.bin").read_bytes()
    assert frame["sensors"]["CAM_FRONT"]["ego_pose"]["translation"] == [1, 0.5, 0.0]
    assert [box["token"] for box in frame["boxes"]] == ["box"] and data[0]["boxes"] == []
    assert open_shards(tmp_path / "out")[0]["CAM_FRONT"].shape == (24, 40, 3)


def test_arrays_of_one_file_and_of_many(tmp_path, packed):
    random = np.random.default_rng(4)
    x, y = random.normal(size=(10, 5, 3)), random.integers(0, 9, 10)
    np.savez(tmp_path / "table.npz", x=x, y=y)
    np.save(tmp_path / "one.npy", x)
    (tmp_path / "runs").mkdir()
    for number in range(3):
        savemat(tmp_path / "runs" / f"run{number}.mat", {"signal": x[number], "rate": 5.0})
    for source in ("table.npz", "one.npy", "runs"):
        packed(tmp_path / source, tmp_path / f"{source}-out", format="flat", shards=2)
    table, one, runs = (open_shards(tmp_path / f"{each}-out") for each in ("table.npz", "one.npy", "runs"))
    assert (
        np.array_equal(table[7]["x"], x[7])
        and table[7]["y"] == y[7]
        and np.array_equal(one[9]["array"], x[9])
    )
    assert len(runs) == 3 and np.array_equal(runs[2]["signal"], x[2]) and runs.key(2) == "run2"
    np.savez(tmp_path / "bad.npz", x=x, y=y[:4])
    with pytest.raises(HotlapError, match=r"x \(10, 5, 3\), y \(4,\)"):
        open_source(str(tmp_path / "bad.npz"), {})


def test_parquet_of_other_tools(tmp_path, packed):
    columns = {
        "tokens": pa.array([[1, 2, 3], [], [4]], pa.list_(pa.int16())),
        "text": ["a", None, "c"],
        "grid": pa.array([[[1, 2]], [[3, 4]], [[5, 6]]], pa.list_(pa.list_(pa.float32(), 2))),
        "ragged": [[[1], [2, 3]], [], [[4]]],
        "holes": [[1, None], [], [2]],
    }
    (tmp_path / "set").mkdir()
    for part in range(2):
        pq.write_table(pa.table(columns), tmp_path / "set" / f"{part}.parquet")
    packed(tmp_path / "set", tmp_path / "out", format="tar")
    data = open_shards(tmp_path / "out")
    assert len(data) == 6 and data[3]["tokens"].tolist() == [1, 2, 3] and data[4]["text"] is None
    assert data[3]["tokens"].dtype == np.int16 and data[4]["tokens"].shape == (0,)
    assert data[2]["grid"].tolist() == [[5.0, 6.0]] and data[2]["grid"].dtype == np.float32
    assert data[0]["ragged"] == [[1], [2, 3]] and data[0]["holes"] == [1, None]


@pytest.mark.parametrize("form", ["tar", "flat", "parquet"])
def test_a_dataset_that_python_can_import_gives_equal_items(user_module, tmp_path, packed, form):
    user_module("own_set", TRAIN_SET)
    import own_set

    packed("own_set:TrainSet", "out", format=form, shards=2, arguments={"count": 7, "scale": 2.5})
    data, wanted = open_shards("out"), own_set.TrainSet(7, 2.5)
    for at in range(7):
        ours, theirs = data[at], wanted[at]
        assert ours.keys() == theirs.keys() and isinstance(ours["pair"], tuple)
        assert torch.equal(ours["x"], theirs["x"]) and ours["pair"] == theirs["pair"]
        assert type(ours["pair"][1][0]) is type(theirs["pair"][1][0]) and type(ours["pair"][0]) is int
        assert ours["picture"].tobytes() == theirs["picture"].tobytes()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("own_set:Random", {"count": 9}, "is random: item 0 was not the same twice"),
        ("own_set:ByEpoch", {"count": 9}, "changes with the epoch: item 0 is another one then"),
        ("own_set:Strange", {"count": 9}, "field 'x' is a builtins.object"),
        ("own_set:Ragged", {"count": 9}, "sample 5 has another structure"),
        ("own_set:Fails", {"count": 9}, "sample 6 cannot be read: KeyError: 'label'"),
        ("own_set:TrainSet", {}, "it takes \\(count, scale=1.0, name='x'\\)"),
        ("own_set:TrainSet", {"count": 0}, "holds no samples"),
        ("own_set:Missing", {}, "own_set has no 'Missing'"),
        ("no_such_module.data:TrainSet", {}, "there is no module 'no_such_module'"),
        ("own_set:torch", {}, "is no map-style dataset"),
        ("nowhere", {}, "there is no 'nowhere'"),
    ],
)
def test_what_cannot_be_packed_says_why(user_module, packed, name, arguments, message):
    user_module("own_set", TRAIN_SET)
    with pytest.raises(HotlapError, match=message) as error:
        packed(name, "out", format="flat", arguments=arguments)
    assert error.value.remedy


def damage_wav(speech):
    path = speech / "clips/s.6.wav"
    path.write_bytes(path.read_bytes()[:-7])
    return speech, f"{path}: the file is damaged: the WAV file is cut off: 7 of"


def empty_flac(speech):
    (speech / "clips/s.7.flac").write_bytes(b"")
    return speech, "s.7.flac: the file is damaged: it is empty"


def missing_sound(speech):
    (speech / "clips/s.8.wav").unlink()
    return speech, "s.8.wav cannot be read: No such file"


def torn_line(speech):
    manifest = speech / "train_manifest.json"
    manifest.write_text(manifest.read_text()[:-9])
    return speech, "line 26 of .*train_manifest.json is no entry"


@pytest.mark.parametrize("harm", [damage_wav, empty_flac, missing_sound, torn_line])
def test_a_damaged_sound_is_named(speech, tmp_path, packed, harm):
    source, message = harm(speech)
    with pytest.raises(HotlapError, match=message):
        packed(source, tmp_path / "out", format="nemo")


def test_a_damaged_picture_is_named(pictures, tmp_path, packed):
    path = pictures / "dog" / "3.jpeg"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(
        HotlapError, match=r"dog/3.jpeg: the file is damaged: it is cut off.\n .*finished shards are kept"
    ):
        packed(pictures, tmp_path / "out")


def test_keys_are_flat_and_no_two_are_alike():
    assert unique_keys(["a/b.c", "a_b/c", "x", "x", "x-1", "/"]) == [
        "a_b_c",
        "a_b_c-1",
        "x",
        "x-1",
        "x-1-1",
        "sample",
    ]
