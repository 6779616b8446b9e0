"""Tars: plain for every tool, found by an index, whatever the names."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest

from hotlap.data.samples import read_arrays, write_arrays
from hotlap.data.tarshards import Keys, MappedTar, TarWriter, index_path, load_index, scan
from hotlap.errors import HotlapError

NAMES = ["a", "with space", "Größe-語", "x" * 150, "folder/inside", "-dash"]


@pytest.fixture
def tar(tmp_path):
    path = tmp_path / "a.tar"
    writer = TarWriter(path)
    for at, name in enumerate(NAMES):
        writer.add(name, "bin", bytes([at]) * at * 300)
        writer.add(name, "side.txt", name.encode())
    writer.close()
    return path


def test_other_tools_read_it(tar):
    with tarfile.open(tar) as file:
        members = file.getmembers()
        assert [each.name for each in members[::2]] == [f"{name}.bin" for name in NAMES]
        assert all((each.mtime, each.uid, each.mode) == (0, 0, 0o644) for each in members)
        for at, each in enumerate(members[::2]):
            assert file.extractfile(each).read() == bytes([at]) * at * 300
    assert tar.stat().st_size % tarfile.RECORDSIZE == 0


def test_written_and_scanned_indices_are_the_same(tar):
    written = index_path(tar).read_bytes()
    index_path(tar).unlink()
    index = load_index(tar)
    assert index_path(tar).read_bytes() == written
    keys = Keys(index)
    assert list(keys) == NAMES and keys[-1] == NAMES[-1] and keys[1:3] == NAMES[1:3]
    with pytest.raises(IndexError):
        keys[len(NAMES)]


def test_files_are_views_of_the_tar(tar):
    mapped = MappedTar(tar)
    for at, name in enumerate(NAMES):
        files = mapped.files(at)
        assert bytes(files["bin"]) == bytes([at]) * at * 300 and bytes(files["side.txt"]).decode() == name
        assert files["bin"].readonly


def test_where_nobody_may_write_the_index_is_only_in_memory(tar, monkeypatch):
    index_path(tar).unlink()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hotlap.data.tarshards.write_arrays", refuse)
    assert len(load_index(tar)) == len(NAMES) and not index_path(tar).exists()
    assert [each.name for each in tar.parent.iterdir()] == ["a.tar"], "and no draft is left"


def test_folders_links_and_hidden_files_are_no_samples(tmp_path):
    path = tmp_path / "b.tar"
    (tmp_path / "d").mkdir()
    for name in ("d/one.txt", "d/.hidden", "d/nosuffix"):
        (tmp_path / name).write_text(name)
    (tmp_path / "d/link.txt").symlink_to("one.txt")
    with tarfile.open(path, "w") as file:
        file.add(tmp_path / "d", "d")
    assert [(each.key, each.suffix) for each in scan(path)] == [("d/one", "txt")]


def test_an_empty_tar_has_no_samples(tmp_path):
    TarWriter(tmp_path / "e.tar").close()
    assert len(load_index(tmp_path / "e.tar")) == 0


def test_a_damaged_head_hides_nothing_from_who_has_the_index(tar):
    content = bytearray(tar.read_bytes())
    content[150] ^= 1  # in the checksum of the first head
    tar.write_bytes(content)
    with pytest.raises(HotlapError, match=r"a\.tar cannot be read as a tar"):
        scan(tar)
    assert bytes(MappedTar(tar).files(3)["side.txt"]).decode() == NAMES[3]
    index_path(tar).unlink()
    with pytest.raises(HotlapError, match=r"a\.tar cannot be read as a tar"):
        MappedTar(tar)


def test_array_files_keep_types_shapes_and_alignment(tmp_path):
    arrays = [np.arange(5, dtype=np.int8), np.zeros((0, 3)), np.eye(3), np.asarray(7), np.array(["ä", "bc"])]
    write_arrays(tmp_path / "x", {"name": "n", "list": [1, 2]}, arrays)
    head, back = read_arrays(tmp_path / "x")
    assert head == {"name": "n", "list": [1, 2]}
    for ours, theirs in zip(back, arrays, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and (ours == theirs).all()
        assert not ours.size or ours.ctypes.data % 64 == 0
    content = (tmp_path / "x").read_bytes()
    for damaged in (
        b"",
        content[:7],
        content[:40],
        content[:-70],
        b"X" + content[1:],
        content.replace(b'"head"', b'"hand"'),
    ):
        (tmp_path / "y").write_bytes(damaged)
        with pytest.raises(HotlapError, match="y is damaged"):
            read_arrays(tmp_path / "y")
