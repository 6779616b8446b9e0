"""The work on one shard, wherever it is done: in this process, in a worker, on a cluster."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import IO, Any

from hotlap.data.formats import format_named
from hotlap.data.pack.job import Moments, PackJob, Preparation, joined, moments_of, normalised
from hotlap.data.pack.source import SampleSource
from hotlap.data.pack.sources import open_source
from hotlap.data.samples import SampleError, checksum, size_of
from hotlap.data.shards import file_digest
from hotlap.errors import FactError, UsageError
from hotlap.facts.codec import from_plain, to_plain, write_text

Tell = Callable[[int, int], None]
"""Called with samples and bytes as they are done."""


@dataclass(frozen=True)
class PackTask:
    """`kind` is `moments` (look at the values) or `shard` (write them)."""

    kind: str
    number: int

    @property
    def note(self) -> str:
        return f"{self.kind}-{self.number}"


class Workshop:
    """A job with its source opened once, for as many tasks as come."""

    def __init__(self, job: PackJob, folder: Path) -> None:
        self.place = ShardFolder(folder)
        self._job = job
        self._source: SampleSource = open_source(job.order.source, job.order.arguments)
        self._preparation = Preparation(job.order.transform, job.order.normalise, self._source.structured)

    def carry_out(self, task: PackTask, tell: Tell) -> None:
        """The result is noted in the work folder; a task that is noted is done."""
        result = self._moments(task, tell) if task.kind == "moments" else self._shard(task, tell)
        self.place.write_note(task.note, result)

    def _moments(self, task: PackTask, tell: Tell) -> dict[str, Any]:
        found: dict[str, Moments] = {}
        for index in self._indices(task):
            fields = self._preparation.fields(self._source, index, self._job.template)
            for name in self._job.order.normalise:
                part = moments_of(fields[name])
                found[name] = joined(found[name], part) if name in found else part
            tell(1, size_of(fields))
        return {name: to_plain(each) for name, each in found.items()}

    def _shard(self, task: PackTask, tell: Tell) -> dict[str, Any]:
        moments = joined_moments(self.place, self._job)
        form = format_named(self._job.order.format)
        draft = self.place.draft(task.note)
        crcs = []
        try:
            with form.write(draft / form.name(task.number)) as writer:
                for index in self._indices(task):
                    fields = self._preparation.fields(self._source, index, self._job.template)
                    fields = normalised(fields, moments)
                    writer.add(self._source.keys[index], fields)
                    crcs.append(checksum(fields))
                    tell(1, size_of(fields))
            digests = {
                str(path.relative_to(draft)): to_plain(file_digest(path))
                for path in sorted(draft.rglob("*"))
                if path.is_file()
            }
            self.place.move_in(draft, task.note)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            what = f"shard {task.number} cannot be written to {self.place.folder}: {error.strerror}."
            raise SampleError(what, "make room there, then run the same command again") from error
        return {"name": form.name(task.number), "crcs": crcs, "files": digests}

    def _indices(self, task: PackTask) -> range:
        return range(self._job.bounds[task.number], self._job.bounds[task.number + 1])


def joined_moments(place: ShardFolder, job: PackJob) -> dict[str, Moments]:
    """Of all shards, joined in their order, so that the last bit is the same however they were worked on."""
    if not job.order.normalise:
        return {}
    parts = [place.note(PackTask("moments", number).note) for number in range(job.shards)]
    return {
        name: reduce(joined, (from_plain(Moments, part[name], name) for part in parts))
        for name in job.order.normalise
    }


# The folder that is being packed: who works on it, what is finished, and what a kill leaves behind.
#
# A shard is written under `.packing/`, then moved to its place, then noted as done. What has no note is
# thrown away and written again, so a kill at any moment loses at most the shards under way.


WORK = ".packing"
_ORPHANS_S = 60
"""How long workers of a killed packer are waited for: they stop at the next sample."""


class ShardFolder:
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
        write_text(self.work / f"{name}.json", json.dumps(plain), shared=True)

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
