from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotlap.host import storage
from hotlap.host.storage import NotMeasurableError, drop_cache, is_cached, read_speed

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="measured on Linux only")
SMALL = 16 << 20


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A folder on a disk; the test file is kept small, as speed is not what is tested."""
    if storage._file_system(tmp_path) in storage.IN_MEMORY:
        pytest.skip("the temporary folder lies in memory")
    monkeypatch.setattr(storage, "MAX_BYTES", SMALL)
    return tmp_path


def test_the_folder_is_measured_and_left_as_it_was(disk):
    (disk / "data.bin").write_bytes(b"mine")
    found = read_speed(disk)
    assert found.folder == str(disk)
    assert found.read_bytes_per_s > 0
    assert found.method in ("pages dropped from the cache before reading", "O_DIRECT")
    assert [path.name for path in disk.iterdir()] == ["data.bin"]


def test_what_is_read_is_what_was_written_and_no_two_pages_are_equal(disk):
    with tempfile.TemporaryFile(dir=disk, buffering=0) as file:
        written = storage._write(file.fileno(), SMALL)
        assert written == SMALL
        file.seek(0)
        content = file.read(SMALL)
    pages = {content[at : at + 4096] for at in range(0, SMALL, 4096)}
    assert len(pages) == SMALL // 4096


@pytest.fixture
def cached_file(disk):
    with tempfile.TemporaryFile(dir=disk, buffering=0) as file:
        storage._write(file.fileno(), SMALL)
        if is_cached(file.fileno(), SMALL) is None:
            pytest.skip("this file system does not tell what is cached")
        yield file.fileno()


def test_what_was_just_written_is_seen_in_the_cache_and_can_be_dropped(cached_file):
    assert is_cached(cached_file, SMALL) is True
    assert drop_cache(cached_file, SMALL)


def test_a_kernel_that_drops_nothing_is_found_out(cached_file, monkeypatch):
    monkeypatch.setattr(storage.os, "posix_fadvise", lambda *arguments: None)
    assert not drop_cache(cached_file, SMALL)


def test_a_cache_that_cannot_be_dropped_is_bypassed(disk, monkeypatch):
    monkeypatch.setattr(storage, "is_cached", lambda file, length: True)
    try:
        found = read_speed(disk)
    except NotMeasurableError as reason:
        assert "through the cache" in str(reason) or "failed" in str(reason)
    else:
        assert found.method == "O_DIRECT"


def test_a_folder_in_memory_has_no_disk_speed():
    if storage._file_system(Path("/dev/shm")) not in storage.IN_MEMORY:
        pytest.skip("no tmpfs here")
    with pytest.raises(NotMeasurableError, match="lies in memory"):
        read_speed(Path("/dev/shm"))


def test_a_fault_in_the_middle_is_told_and_leaves_nothing_behind(disk, monkeypatch):
    def broken(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(storage.os, "fdatasync", broken)
    with pytest.raises(NotMeasurableError, match="Input/output error"):
        read_speed(disk)
    assert list(disk.iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(disk, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_speed(disk)
    assert list(disk.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(disk):
    disk.chmod(0o500)
    with pytest.raises(NotMeasurableError, match="Permission denied"):
        read_speed(disk)


def test_a_folder_that_is_not_there_is_told(disk):
    with pytest.raises(NotMeasurableError, match="No such file"):
        read_speed(disk / "gone")


def test_a_full_disk_is_told(disk, monkeypatch):
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 20))
    with pytest.raises(NotMeasurableError, match="full"):
        read_speed(disk)


def test_another_system_is_told(disk, monkeypatch):
    monkeypatch.setattr(storage.platform, "system", lambda: "Darwin")
    with pytest.raises(NotMeasurableError, match="on Darwin"):
        read_speed(disk)
