"""Caches in files: shared by runs and ranks, and rebuilt or refused whenever anything about them is in doubt."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from hotlap.data import materialise
from hotlap.data.cache import folder
from hotlap.data.cache.fingerprint import fingerprint
from hotlap.data.cache.served import kept_of
from hotlap.data.cache.source import source_of

SCRIPT = """
import sys, time, torch
from torch.utils.data import Dataset
from hotlap.data import materialise

FACTOR = 3

def scaled(row):
    return torch.full((64,), float(row)) * FACTOR

class Slow(Dataset):
    def __len__(self):
        return 300
    def __getitem__(self, index):
        time.sleep(float(sys.argv[1]))
        return scaled(index), index

served = materialise(Slow(), "file")
print("total", sum(float(row.sum()) + number for row, number in (served[i] for i in range(300))))
"""
TOTAL = 64 * 3 * sum(range(300)) + sum(range(300))


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """The script, in a process of its own."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def run(item_s: float = 0.0) -> subprocess.Popen[str]:
        argv = [sys.executable, "script.py", str(item_s)]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(argv, cwd=tmp_path, text=True, start_new_session=True, **pipes)

    return run


def ended(process: subprocess.Popen[str]) -> tuple[float, str]:
    """The total that it printed, and what it said."""
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return float(out.split()[-1]), said


def runs(pid: int) -> bool:
    """A process that has ended may still wait for somebody to ask for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_build_leaves_nothing_that_is_served(start, tmp_path):
    cache = tmp_path / ".hotlap" / "cache"
    killed = start(0.02)
    deadline = time.monotonic() + 90
    while not any(part.stat().st_size for part in cache.glob("*.draft-*/0.data")):
        assert time.monotonic() < deadline and killed.poll() is None
        time.sleep(0.01)
    children = [
        int(each) for each in Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    ]
    killed.kill()
    killed.communicate()
    assert len(list(cache.glob("*.draft-*"))) == 1 and not list(cache.glob(f"*/{folder.INDEX}")) and children
    total, said = ended(start())
    assert total == TOTAL and "caching 300 items" in said
    assert not list(cache.glob("*.draft-*")) and len(list(cache.glob(f"*/{folder.INDEX}"))) == 1
    assert not any(runs(child) for child in children)  # they saw that their parent had gone
    changed = SCRIPT.replace("FACTOR = 3", "FACTOR = 5")
    (tmp_path / "script.py").write_text(changed)
    total, said = ended(start())
    assert total == 64 * 5 * sum(range(300)) + sum(range(300)) and "caching 300 items" in said


def test_two_runs_at_once_build_one_cache(start):
    results = [ended(process) for process in (start(0.003), start(0.003))]
    assert [total for total, _ in results] == [TOTAL, TOTAL]
    said = [text for _, text in results]
    assert sum("caching 300 items" in text for text in said) == 1
    assert sum("300 items of Slow come from" in text for text in said) == 1


class Rows(Dataset):
    """Reads a file that an attribute names, and one whose name only the code knows."""

    def __init__(self, path: Path, scale: float = 1.0) -> None:
        self.path, self.scale = path, scale

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> np.ndarray:
        offset = float(Path(os.environ["OFFSET_FILE"]).read_text())
        return np.load(self.path)[index] * self.scale + offset


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(300.0).reshape(30, 10))
    (tmp_path / "offset").write_text("1")
    monkeypatch.setenv("OFFSET_FILE", str(tmp_path / "offset"))
    return path


def test_a_second_run_takes_the_file(rows, words):
    first = materialise(Rows(rows), "file")
    assert "caching 30 items of Rows in" in words()
    second = materialise(Rows(rows), "file")
    assert "30 items of Rows come from" in words()
    assert kept_of(first).store is not kept_of(second).store
    assert np.array_equal(second[7], Rows(rows)[7])
    assert (rows.parent / ".hotlap" / ".gitignore").read_text() == "*\n"


def test_a_changed_file_is_noticed(rows, words):
    materialise(Rows(rows), "file")
    np.save(rows, np.arange(300.0).reshape(30, 10) + 0.5)
    words()
    assert materialise(Rows(rows), "file")[0][0] == 1.5
    assert "caching 30 items" in words()
    (rows.parent / "offset").write_text("2")  # of the same size, and named by no attribute
    assert materialise(Rows(rows), "file")[0][0] == 2.5
    assert "offset has changed" in words()
    (rows.parent / "offset").unlink()
    (rows.parent / "offset").symlink_to(rows.parent / "other")
    (rows.parent / "other").write_text("4")
    assert materialise(Rows(rows), "file")[0][0] == 4.5


def test_other_parameters_have_another_cache(rows):
    one, two = materialise(Rows(rows), "file"), materialise(Rows(rows, 2.0), "file")
    assert one[1][0] == 11.0 and two[1][0] == 21.0
    assert len(list(rows.parent.glob(f".hotlap/cache/*/{folder.INDEX}"))) == 2


def test_a_fingerprint_that_misses_something_is_caught_by_a_look_at_items(rows, words, monkeypatch):
    materialise(Rows(rows), "file")
    monkeypatch.setattr(Rows, "__getitem__", lambda self, index: np.zeros(10))
    monkeypatch.setattr("hotlap.data.cache.materialise.fingerprint", lambda source: only(rows).name)
    assert not materialise(Rows(rows), "file")[3].any()
    assert "its items are not those of the dataset" in words()


@pytest.mark.parametrize(
    "damage",
    [
        lambda part: part.write_bytes(part.read_bytes()[:-8]),
        lambda part: part.write_bytes(b"\1" + part.read_bytes()[1:]),
        lambda part: part.unlink(),
        lambda part: part.with_name(folder.INDEX).write_text("{}"),
        lambda part: part.with_name(folder.INDEX).write_text(
            part.with_name(folder.INDEX).read_text().replace("30", "29", 1)
        ),
    ],
    ids=["cut", "flipped", "gone", "no index", "index"],
)
def test_a_damaged_cache_is_built_anew(rows, words, damage):
    materialise(Rows(rows), "file")
    damage(only(rows) / "0.data")
    words()
    served = materialise(Rows(rows), "file")
    assert "caching 30 items" in words()
    assert np.array_equal(served[29], Rows(rows)[29])


def test_a_full_verify_reads_everything(tmp_path, made):
    dataset = made(lambda index: torch.full((9000,), index))
    materialise(dataset, "file")
    place = next(tmp_path.glob(f".hotlap/cache/*/{folder.INDEX}")).parent
    assert folder.verify(place.parent, place.name) == ""
    with (place / "0.data").open("r+b") as part:  # far from both ends
        part.seek(9000 * 8 * 20)
        part.write(b"\1")
    assert folder.verify(place.parent, place.name) == "0.data"


def only(rows: Path) -> Path:
    (index,) = rows.parent.glob(f".hotlap/cache/*/{folder.INDEX}")
    return index.parent


def test_a_disk_that_is_full_in_the_middle(made, words, tmp_path, require_equal):
    """Files of this process may not grow beyond a limit for a while."""
    dataset = made(lambda index: torch.full((4096,), float(index)), count=100)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, limits[1]))
    before = signal.getsignal(signal.SIGXFSZ)
    try:
        refused = pytest.raises(OSError, match="File too large")
        with refused:
            (tmp_path / "large").write_bytes(bytes(512 * 1024))
        (tmp_path / "large").unlink()
        served = None
        monkey = pytest.MonkeyPatch()
        monkey.setattr("hotlap.data.cache.materialise._in_memory", lambda *_: "memory instead")
        from hotlap.data.cache.materialise import _in_file

        served = _in_file(source_of(dataset)[0], None)
        monkey.undo()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert served == "memory instead"
    assert "no file could be kept: [Errno 27] File too large" in words()
    cache = tmp_path / ".hotlap" / "cache"
    assert not list(cache.glob("*.draft-*")) and not list(cache.glob(f"*/{folder.INDEX}"))
    require_equal(dataset, materialise(dataset, "file"))


def test_a_real_full_disk(made, words, tmp_path, monkeypatch, require_equal):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k,mode=700", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        monkeypatch.setenv("HOTLAP_CACHE", str(disk))
        dataset = made(lambda index: torch.full((4096,), float(index)), count=100)
        require_equal(dataset, materialise(dataset, "file"))
        assert "no file is kept: all items need 1.56 MiB, and 5" in words()
        monkeypatch.setattr("hotlap.data.cache.materialise.require_disk", lambda needed, home: needed * 2)
        other = made(lambda index: torch.full((4096,), float(-index)), count=100)
        require_equal(other, materialise(other, "file"))
        assert "No space left on device" in words()
        assert [each.name for each in disk.iterdir() if each.is_dir()] == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_that_cannot_be_made(made, words, tmp_path, monkeypatch, require_equal):
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("HOTLAP_CACHE", str(tmp_path / "taken" / "cache"))
    dataset = made(lambda index: index)
    require_equal(dataset, materialise(dataset, "file"))
    assert "no file could be kept: [Errno 20] Not a directory" in words()


def test_the_oldest_caches_go_but_none_in_use(made, tmp_path):
    kept = [
        materialise(made(lambda index, add=add: torch.full((500,), index + add)), "file") for add in range(3)
    ]
    home = tmp_path / ".hotlap" / "cache"
    places = [kept_of(served).store.drawer.folder for served in kept]
    for age, place in enumerate(places):
        os.utime(place / folder.INDEX, (age, age))
    size = sum(part.stat().st_size for part in places[0].iterdir())
    folder.make_room(home, size, most=3 * size + 999)
    assert all(place.is_dir() for place in places)  # all are held
    del kept[0], kept[1]
    gc.collect()
    folder.make_room(home, size, most=4 * size + 999)
    assert all(place.is_dir() for place in places)  # there was room
    folder.make_room(home, size, most=3 * size + 999)
    assert [place.is_dir() for place in places] == [False, True, True]
    folder.make_room(home, 3 * size, most=2 * size)
    assert [place.is_dir() for place in places] == [False, True, False]


def test_who_waits_for_a_build_says_for_whom(made, tmp_path, words):
    home = folder.home()
    dataset = made(lambda index: index)
    key = fingerprint(source_of(dataset)[0])
    lock = (home / f"{key}.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write("4711")
    lock.flush()
    threading.Timer(0.7, lock.close).start()
    assert materialise(dataset, "file")[5] == 5
    assert "waiting for process 4711, which builds the same cache" in words()


def flip_in_the_middle(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)


def test_a_byte_that_was_flipped_far_from_both_ends_is_never_served(tmp_path, made, words):
    dataset = made(lambda index: torch.full((9000,), index))
    materialise(dataset, "file")
    place = next(tmp_path.glob(f".hotlap/cache/*/{folder.INDEX}")).parent
    flip_in_the_middle(place / "0.data")
    found = folder.find(place.parent, place.name)
    assert found == "its 0.data is damaged"


@pytest.mark.parametrize("which", ["home", "cache", "part", "index"])
def test_what_others_may_write_to_is_not_read(rows, words, which):
    materialise(Rows(rows), "file")
    place = only(rows)
    path = {"home": place.parent, "cache": place, "part": place / "0.data", "index": place / folder.INDEX}[
        which
    ]
    path.chmod(path.stat().st_mode | 0o020)
    words()
    assert np.array_equal(materialise(Rows(rows), "file")[29], Rows(rows)[29])
    told = words()
    assert "others may write to" in told
    assert "come from" not in told
    assert ("in memory" in told) == (which == "home")


def test_a_cache_is_for_its_owner_whatever_the_umask(rows):
    before = os.umask(0)
    try:
        materialise(Rows(rows), "file")
    finally:
        os.umask(before)
    place = only(rows)
    assert {each.stat().st_mode & 0o777 for each in (place, place.parent, place.parent.parent)} == {0o700}
    assert {each.stat().st_mode & 0o777 for each in place.iterdir()} == {0o600}


def test_an_index_that_names_objects_is_refused_before_anything_is_unpickled(rows):
    materialise(Rows(rows), "file")
    place = only(rows)
    body = json.loads(json.loads((place / folder.INDEX).read_text())["index"])
    body["layout"]["shape"]["kind"] = "object"
    text = json.dumps(body)
    (place / folder.INDEX).write_text(json.dumps({"seal": folder._seal(text), "index": text}))
    assert folder.find(place.parent, place.name) == "it holds objects, which only memory may keep"


def test_a_dataset_built_anew_in_each_epoch_keeps_its_second_cache(rows, words):
    for _ in range(2):  # two runs of a script with two datasets
        kept = [materialise(Rows(rows, factor), "file") for factor in (1.0, 2.0)]
        told = words()
    del kept
    assert "built anew" not in told
    assert told.count("come from") == 2
