"""The folder under work: one packer at a time, notes, drafts, and what is moved in."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hotlap.data.pack import work as place_module
from hotlap.data.pack.work import WORK, ShardFolder
from hotlap.errors import HotlapError

SRC = Path(__file__).parents[3] / "src"
HOLD = """
import sys, time
from pathlib import Path
from hotlap.data.pack.work import ShardFolder
place = ShardFolder(Path(sys.argv[1]))
with getattr(place, sys.argv[2])():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the folder, as a packer or as a worker."""
    started = []

    def hold(how: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(SRC)}
        command = [sys.executable, "-c", HOLD, str(tmp_path / "out"), how]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_process_is_told_who_is_at_work_and_may_when_that_was_killed(tmp_path, other):
    first = other("alone")
    with (
        pytest.raises(HotlapError, match=f"being packed by another hotlap \\(process {first.pid}\\)"),
        ShardFolder(tmp_path / "out").alone(),
    ):
        pass
    first.kill()
    first.wait()
    with ShardFolder(tmp_path / "out").alone():
        assert (tmp_path / "out" / WORK / "lock").read_text() == str(os.getpid())


def test_workers_of_a_killed_packer_are_waited_for(tmp_path, other):
    (tmp_path / "out" / WORK).mkdir(parents=True)
    orphan = other("as_worker")
    entered = threading.Event()

    def enter() -> None:
        with ShardFolder(tmp_path / "out").alone():
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.3), "an orphan still writes"
    orphan.kill()
    orphan.wait()
    assert entered.wait(30)
    thread.join()


def test_one_that_never_ends_is_told(tmp_path, other, monkeypatch):
    (tmp_path / "out" / WORK).mkdir(parents=True)
    other("as_worker")
    monkeypatch.setattr(place_module, "_ORPHANS_S", 0.1)
    began = time.monotonic()
    with pytest.raises(HotlapError, match="still write to"), ShardFolder(tmp_path / "out").alone():
        pass
    assert time.monotonic() - began >= 0.1


def test_a_lock_that_was_taken_away_is_no_lock(tmp_path, monkeypatch):
    """A packer that ends takes its work folder along; who waited with the old file in hand must not go on."""
    place = ShardFolder(tmp_path / "out")

    def gone_meanwhile(file, kind, real=place_module._locked):
        (tmp_path / "out" / WORK / "lock").unlink(missing_ok=True)
        return real(file, kind)

    monkeypatch.setattr(place_module, "_locked", gone_meanwhile)
    with pytest.raises(HotlapError, match="another hotlap"), place.alone():
        pass


def test_files_are_moved_in_and_known_and_drafts_are_thrown_away(tmp_path):
    place = ShardFolder(tmp_path / "out")
    with place.alone():
        draft = place.draft("shard-0")
        (draft / "sub").mkdir()
        (draft / "a.tar").write_bytes(b"a")
        (draft / "sub" / "b.json").write_bytes(b"b")
        place.move_in(draft, "shard-0")
        assert (tmp_path / "out" / "a.tar").read_bytes() == b"a" and not draft.exists()
        assert place.note("placed-shard-0") == ["a.tar", "sub/b.json"]
        left = place.draft("shard-1")
        place.throw_away_drafts()
        assert not left.exists()
        (tmp_path / "out" / "mine").write_bytes(b"not hotlap's")
        place.start_anew()
        assert place.note("placed-shard-0") is None
        assert [each.name for each in sorted((tmp_path / "out").iterdir())] == [WORK, "mine", "sub"]
        place.close()
    assert not (tmp_path / "out" / WORK).exists()


def test_a_torn_note_counts_as_none(tmp_path):
    place = ShardFolder(tmp_path)
    place.work.mkdir()
    place.write_note("shard-0", {"files": {}})
    assert place.note("shard-0") == {"files": {}}
    (place.work / "shard-0.json").write_text('{"files": {')
    assert place.note("shard-0") is None and place.note("never") is None


def test_a_shard_that_is_gone_or_has_another_size_is_forgotten(tmp_path):
    place = ShardFolder(tmp_path)
    place.work.mkdir()
    for name, content in (("kept", b"four"), ("cut", b"fo")):
        (tmp_path / name).write_bytes(content)
    for name in ("kept", "cut", "gone"):
        place.write_note(name, {"files": {name: {"bytes": 4}}})
        place.recheck(name)
    assert [place.note(name) is not None for name in ("kept", "cut", "gone")] == [True, False, False]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(HotlapError, match="cannot be written: Not a directory"),
        ShardFolder(tmp_path / "file" / "out").alone(),
    ):
        pass
