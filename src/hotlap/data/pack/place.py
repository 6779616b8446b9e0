"""The folder that is being packed: who works on it, what is finished, and what a kill leaves behind.

A shard is written under `.packing/`, then moved to its place, then noted as done. What has no note is thrown away and
written again, so a kill at any moment loses at most the shards under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hotlap.errors import FactError, UsageError
from hotlap.facts.codec import write_text

WORK = ".packing"
_ORPHANS_S = 60
"""How long workers of a killed packer are waited for: they stop at the next sample."""


class Place:
    """One folder of shards under work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / WORK

    def note(self, name: str) -> Any:
        """What was noted under a name, or None."""
        try:
            return json.loads((self.work / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def write_note(self, name: str, plain: Any) -> None:
        write_text(self.work / f"{name}.json", json.dumps(plain))

    def draft(self, name: str) -> Path:
        """An empty folder to write in."""
        path = self.work / f"draft-{name}-{os.getpid()}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def move_in(self, draft: Path, note: str) -> None:
        """Move all files of a draft to their places, once they are on the disk."""
        names = sorted(str(each.relative_to(draft)) for each in draft.rglob("*") if each.is_file())
        self.write_note(f"placed-{note}", names)
        for name in names:
            _sync(draft / name)
            target = self.folder / name
            target.parent.mkdir(exist_ok=True)
            (draft / name).replace(target)
        _sync(self.folder)
        shutil.rmtree(draft, ignore_errors=True)

    def recheck(self, note: str) -> None:
        """Forget a finished shard whose files are no longer there."""
        files = (self.note(note) or {}).get("files", {})
        for name, written in files.items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != written["bytes"]:
                (self.work / f"{note}.json").unlink(missing_ok=True)

    def throw_away_drafts(self) -> None:
        for path in self.work.glob("draft-*"):
            shutil.rmtree(path, ignore_errors=True)

    def start_anew(self) -> None:
        """Forget all that was done for another job; what hotlap did not put here is left alone."""
        for note in self.work.glob("placed-*.json"):
            for name in self.note(note.stem) or ():
                (self.folder / name).unlink(missing_ok=True)
        for path in self.work.glob("*.json"):
            path.unlink()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder; a second packer is refused, workers of a killed one are waited for."""
        self._claim()
        with (self.work / "lock").open("a+") as lock:
            if not _locked(lock, fcntl.LOCK_EX) or not _still_there(lock, self.work / "lock"):
                lock.seek(0)
                who = lock.read().strip() or "unknown"
                raise UsageError(
                    f"{self.folder} is being packed by another hotlap (process {who}).",
                    "wait for it, or choose another folder",
                )
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self._wait_for_orphans()
            yield

    @contextlib.contextmanager
    def as_worker(self) -> Iterator[None]:
        """Make known that a worker writes here, for as long as it does."""
        with (self.work / "workers").open("a+") as file:
            _locked(file, fcntl.LOCK_SH)
            yield

    def close(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def _claim(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            foreign = not self.work.exists() and next(self.folder.iterdir(), None)
            if foreign and not (self.folder / "pack.json").exists():
                what = f"{self.folder} holds files that hotlap did not pack ({foreign.name})."
                raise UsageError(what, "choose an empty or a new folder")
            self.work.mkdir(exist_ok=True)
        except OSError as error:
            what = f"{self.folder} cannot be written: {error.strerror}."
            raise UsageError(what, "choose another folder") from None

    def _wait_for_orphans(self) -> None:
        with (self.work / "workers").open("a+") as file:
            until = time.monotonic() + _ORPHANS_S
            while not _locked(file, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    what = f"workers of a packer that was killed still write to {self.folder}."
                    raise FactError(what, "end them, or choose another folder")
                time.sleep(0.02)


def _locked(file: IO[str], kind: int) -> bool:
    """The lock goes with the process that holds it, however that ends."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_there(file: IO[str], path: Path) -> bool:
    """Whether a locked file is the one that others find; a packer that has just ended took its own away."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
