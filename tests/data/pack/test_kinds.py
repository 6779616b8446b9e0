"""What a source says of itself: whether it is meant, its keys, sizes and fingerprint, and its faults."""

from __future__ import annotations

import json
import os
import shutil
import sys

import numpy as np
import pytest
from scipy.io import savemat

from hotlap.data.pack.sources import natural_format, open_source
from hotlap.data.pack.sources.arrays import Arrays, load_arrays
from hotlap.data.pack.sources.dataset import DatasetSource
from hotlap.data.pack.sources.manifest import Manifest
from hotlap.data.pack.sources.nuscenes import NuScenes
from hotlap.data.pack.sources.parquet import ParquetFiles
from hotlap.data.pack.sources.pictures import Pictures
from hotlap.data.shards import open_shards
from hotlap.errors import HotlapError


@pytest.fixture
def arrays(tmp_path):
    folder = tmp_path / "arrays"
    folder.mkdir()
    for number in range(3):
        np.save(folder / f"{number}.npy", np.full(number + 1, number))
    return folder


@pytest.fixture
def parquet(tmp_path, arrays, packed):
    packed(arrays, tmp_path / "parquet", format="parquet")
    (tmp_path / "parquet" / "pack.json").unlink()
    return tmp_path / "parquet"


KINDS = {
    "speech": (Manifest, "nemo"),
    "pictures": (Pictures, "tar"),
    "driving": (NuScenes, "tar"),
    "arrays": (Arrays, "flat"),
    "parquet": (ParquetFiles, "flat"),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_folder_is_taken_for_what_it_is(name, request):
    folder = request.getfixturevalue(name)
    kind, form = KINDS[name]
    source = open_source(str(folder), {})
    assert type(source) is kind and natural_format(str(folder), changed=False) == form
    assert natural_format(str(folder), changed=True) == "flat"
    keys = list(source.keys)
    assert len(set(keys)) == len(keys) and not any("." in key or "/" in key for key in keys)
    sizes = source.sizes()
    assert sizes is None or (len(sizes) == len(keys) and min(sizes) > 0)
    with pytest.raises(HotlapError, match="takes no --arg"):
        open_source(str(folder), {"a": 1})


@pytest.mark.parametrize("name", KINDS)
def test_a_touched_file_changes_the_fingerprint_and_nothing_else_does(name, request):
    folder = request.getfixturevalue(name)
    before = open_source(str(folder), {}).fingerprint()
    assert open_source(str(folder), {}).fingerprint() == before
    (folder / "README").write_text("a file that is no sample")
    assert open_source(str(folder), {}).fingerprint() == before
    inside = [
        each
        for each in sorted(folder.rglob("*"))
        if each.suffix in (".wav", ".jpg", ".jpeg", ".npy", ".parquet")
    ]
    chosen = [each for each in inside if "False" not in each.name][-1]
    stamp = chosen.stat().st_mtime_ns
    os.utime(chosen, ns=(stamp + 1, stamp + 1))
    assert open_source(str(folder), {}).fingerprint() != before


def test_a_name_of_a_module_is_a_dataset_unless_there_is_such_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert DatasetSource.recognises("package.module:Name.inner") and not DatasetSource.recognises("folder/x")
    (tmp_path / "a:b").mkdir()
    assert not DatasetSource.recognises("a:b")


def test_several_manifests_are_not_guessed_between(speech):
    shutil.copy(speech / "train_manifest.json", speech / "dev_manifest.json")
    with pytest.raises(
        HotlapError, match=r"several manifests: dev_manifest.json, train_manifest.json.\n.*name the one"
    ):
        open_source(str(speech), {})
    assert len(open_source(str(speech / "dev_manifest.json"), {}).keys) == 26


@pytest.mark.parametrize("line", ["not json", "[]", "{}", '{"audio_filepath": 5}'])
def test_a_line_that_is_no_entry_is_named(speech, line):
    manifest = speech / "train_manifest.json"
    manifest.write_text(manifest.read_text() + line + "\n")
    with pytest.raises(HotlapError, match=r"line 27 of .*train_manifest\.json"):
        open_source(str(speech), {})


def test_a_sound_of_an_unknown_kind_is_refused(speech, packed, tmp_path):
    (speech / "clips/x.aac").write_bytes(b"??")
    (speech / "train_manifest.json").write_text(
        json.dumps({"audio_filepath": "clips/x.aac", "duration": 1.0})
    )
    with pytest.raises(HotlapError, match=r"x\.aac is no sound that hotlap reads"):
        packed(speech, tmp_path / "out", format="nemo")


def test_pictures_without_classes_have_no_label(pictures, tmp_path, packed):
    packed(pictures / "cat", tmp_path / "out")
    fields = open_shards(tmp_path / "out", decode=False)[0]
    assert sorted(fields) == ["jpg", "path"]


def test_the_order_of_pictures_is_that_of_no_file_system(pictures, tmp_path):
    shutil.copytree(pictures, tmp_path / "copy")
    assert list(open_source(str(pictures), {}).keys) == list(open_source(str(tmp_path / "copy"), {}).keys)


def test_a_driving_tree_may_miss_a_file_or_a_table(driving, tmp_path, packed):
    (driving / "samples/CAM_BACK/1-True.jpg").unlink()
    with pytest.raises(HotlapError, match=r"CAM_BACK/1-True\.jpg.*No such file"):
        packed(driving, tmp_path / "out")
    (driving / "v1.0-mini" / "sample_annotation.json").unlink()  # as in the test part, which has no boxes
    assert open_source(str(driving), {}).read(0)["boxes"] == []
    (driving / "v1.0-mini" / "ego_pose.json").write_text("[")
    with pytest.raises(HotlapError, match=r"ego_pose\.json cannot be read"):
        open_source(str(driving), {})


def test_several_versions_of_a_driving_tree_are_not_guessed_between(driving):
    shutil.copytree(driving / "v1.0-mini", driving / "v1.0-trainval")
    with pytest.raises(HotlapError, match=r"several versions: v1\.0-mini, v1\.0-trainval"):
        open_source(str(driving), {})


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat"])
def test_a_damaged_array_file_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"these bytes are no array" * 20)
    with pytest.raises(HotlapError, match=f"{name} cannot be read"):
        load_arrays(tmp_path / name)


def test_arrays_of_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(HotlapError, match=r"a\.npy cannot be read: .*allow_pickle"):
        load_arrays(tmp_path / "a.npy")


def test_matlab_files_say_what_they_need(tmp_path, monkeypatch):
    savemat(tmp_path / "a.mat", {"x": np.eye(2)})
    assert load_arrays(tmp_path / "a.mat")["x"].tolist() == [[1, 0], [0, 1]]
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "b.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM" + bytes(400))
    with pytest.raises(HotlapError, match=r"MATLAB 7\.3 and needs h5py"):
        load_arrays(tmp_path / "b.mat")
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(HotlapError, match="needs scipy"):
        load_arrays(tmp_path / "a.mat")


def test_a_packed_folder_is_not_packed_again(tmp_path, packed, arrays):
    packed(arrays, tmp_path / "out", format="parquet")
    with pytest.raises(HotlapError, match="is packed already"):
        open_source(str(tmp_path / "out"), {})


def test_a_folder_of_something_else_says_what_can_be_packed(tmp_path):
    (tmp_path / "a.docx").write_text("?")
    with pytest.raises(HotlapError, match="nothing that hotlap knows how to pack"):
        open_source(str(tmp_path), {})
