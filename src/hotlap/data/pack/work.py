"""The work on one shard, wherever it is done: in this process, in a worker, on a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from hotlap.data.formats import format_named
from hotlap.data.pack.job import Job
from hotlap.data.pack.moments import Moments, joined, moments_of
from hotlap.data.pack.place import Place
from hotlap.data.pack.prepare import Preparation, normalised
from hotlap.data.pack.source import Source
from hotlap.data.pack.sources import open_source
from hotlap.data.samples import SampleError, checksum, size_of
from hotlap.data.sealed import file_digest
from hotlap.facts.codec import from_plain, to_plain

Tell = Callable[[int, int], None]
"""Called with samples and bytes as they are done."""


@dataclass(frozen=True)
class Task:
    """`kind` is `moments` (look at the values) or `shard` (write them)."""

    kind: str
    number: int

    @property
    def note(self) -> str:
        return f"{self.kind}-{self.number}"


class Workshop:
    """A job with its source opened once, for as many tasks as come."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.place = Place(folder)
        self._job = job
        self._source: Source = open_source(job.order.source, job.order.arguments)
        self._preparation = Preparation(job.order.transform, job.order.normalise, self._source.structured)

    def carry_out(self, task: Task, tell: Tell) -> None:
        """The result is noted in the work folder; a task that is noted is done."""
        result = self._moments(task, tell) if task.kind == "moments" else self._shard(task, tell)
        self.place.write_note(task.note, result)

    def _moments(self, task: Task, tell: Tell) -> dict[str, Any]:
        found: dict[str, Moments] = {}
        for index in self._indices(task):
            fields = self._preparation.fields(self._source, index, self._job.template)
            for name in self._job.order.normalise:
                part = moments_of(fields[name])
                found[name] = joined(found[name], part) if name in found else part
            tell(1, size_of(fields))
        return {name: to_plain(each) for name, each in found.items()}

    def _shard(self, task: Task, tell: Tell) -> dict[str, Any]:
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

    def _indices(self, task: Task) -> range:
        return range(self._job.bounds[task.number], self._job.bounds[task.number + 1])


def joined_moments(place: Place, job: Job) -> dict[str, Moments]:
    """Of all shards, joined in their order, so that the last bit is the same however they were worked on."""
    if not job.order.normalise:
        return {}
    parts = [place.note(Task("moments", number).note) for number in range(job.shards)]
    return {
        name: reduce(joined, (from_plain(Moments, part[name], name) for part in parts))
        for name in job.order.normalise
    }
