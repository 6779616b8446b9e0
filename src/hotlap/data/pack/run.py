"""Pack a source into a folder of shards: parallel, resumable, checksummed, and complete only when it is sealed."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hotlap.data.budget import usable_cores
from hotlap.data.formats import format_named
from hotlap.data.pack.job import PackJob, PackRequest, plan_job
from hotlap.data.pack.sources import open_source
from hotlap.data.pack.work import PackTask, ShardFolder, Tell, Workshop, joined_moments
from hotlap.data.samples import checksum
from hotlap.data.shards import CHECKSUMS, SEAL, Seal, Shard, ShardFileInfo, file_digest, read_seal, seal_text
from hotlap.errors import HotlapError, UsageError
from hotlap.facts.codec import from_plain

NORMALISATION = "normalisation.json"
CarryOut = Callable[[PackJob, Path, Sequence[PackTask], Tell], None]


_TELL_S = 0.1
"""How often a worker reports; a worker whose parent has gone notices it by then."""


def carry_out(job: PackJob, folder: Path, tasks: Sequence[PackTask], tell: Tell) -> None:
    """All tasks, in as many processes as there are cores; the first error ends them all."""
    workers = min(usable_cores(), len(tasks))
    if workers < 2:
        shop = Workshop(job, folder)
        for task in tasks:
            shop.carry_out(task, tell)
        return
    start = multiprocessing.get_context(
        "spawn"
    )  # a fork would copy locks of torch's threads in an unknown state
    waiting = deque(tasks)
    crew: dict[Connection, Any] = {}
    try:
        for _ in range(workers):
            ours, theirs = start.Pipe()
            process = start.Process(target=_work, args=(theirs, job, folder), daemon=True)
            process.start()
            theirs.close()
            crew[ours] = process
            ours.send(waiting.popleft())
        _attend(crew, waiting, tell)
    finally:
        for process in crew.values():
            process.kill()
            process.join()


def _attend(crew: dict[Connection, Any], waiting: deque[PackTask], tell: Tell) -> None:
    while crew:
        for pipe in wait(list(crew)):
            assert isinstance(pipe, Connection)
            try:
                said = pipe.recv()
            except EOFError:
                process = crew[pipe]
                process.join()
                remedy = "if memory was short, choose more --shards; then run the same command again"
                raise HotlapError(f"a worker ended with exit code {process.exitcode}.", remedy) from None
            if isinstance(said, HotlapError):
                raise said
            if said == "done":
                if waiting:
                    pipe.send(waiting.popleft())
                else:
                    pipe.send(None)
                    crew.pop(pipe).join()
            else:
                tell(*said)


def _work(pipe: Connection, job: PackJob, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    report = ProgressReporter(pipe)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            shop = Workshop(job, folder)
            with shop.place.as_worker():
                while (task := pipe.recv()) is not None:
                    shop.carry_out(task, report.tell)
                    report.flush()
                    pipe.send("done")
        except HotlapError as error:
            pipe.send(HotlapError(error.what, error.remedy))
        except (MemoryError, OSError) as error:
            if not isinstance(error, BrokenPipeError | ConnectionResetError):
                pipe.send(
                    HotlapError(
                        f"packing failed: {type(error).__name__}: {error}.", "run the same command again"
                    )
                )
    os._exit(0)  # the user's modules may have left threads behind


class ProgressReporter:
    """Adds up what is done and sends it now and then."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._done = (0, 0)
        self._sent = time.monotonic()

    def tell(self, samples: int, size: int) -> None:
        self._done = (self._done[0] + samples, self._done[1] + size)
        if time.monotonic() - self._sent > _TELL_S:
            self.flush()

    def flush(self) -> None:
        self._pipe.send(self._done)
        self._done = (0, 0)
        self._sent = time.monotonic()


# The tasks of a job on a Ray cluster: the same tasks, the same bytes. All machines must see the same folders.


def carry_out_on_ray(job: PackJob, folder: Path, tasks: Sequence[PackTask], tell: Tell) -> None:
    """All tasks, on the cluster that Ray is connected to; without one, on a local Ray."""
    try:
        import ray
    except ImportError:
        raise UsageError(
            "Ray is not installed.", "pip install 'hotlap[ray]', or leave --engine away"
        ) from None
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    try:
        remote = ray.remote(max_retries=2)(_carried)
        open_tasks = [remote.remote(job, folder, task, Path.cwd()) for task in tasks]
        while open_tasks:
            ready, open_tasks = ray.wait(open_tasks)
            for each in ray.get(ready):
                _tell_or_raise(each, tell)
    except ray.exceptions.RayError as error:
        what = f"Ray could not do the work: {str(error).strip().splitlines()[-1]}"
        raise HotlapError(
            what, "install hotlap and share the folders on every machine of the cluster"
        ) from error
    finally:
        if started:
            ray.shutdown()


def _carried(job: PackJob, folder: Path, task: PackTask, here: Path) -> tuple[int, int] | tuple[str, str]:
    """What was done; or the error in plain words, since Ray would wrap it in its own."""
    done: list[tuple[int, int]] = []
    os.chdir(here)  # names of files and modules are meant from where the user is
    try:
        shop = Workshop(job, folder)
        with shop.place.as_worker():
            shop.carry_out(task, lambda samples, size: done.append((samples, size)))
    except HotlapError as error:
        return (error.what, error.remedy)
    return (sum(samples for samples, _ in done), sum(size for _, size in done))


def _tell_or_raise(result: tuple[Any, Any], tell: Tell) -> None:
    if isinstance(result[0], str):
        raise HotlapError(result[0], result[1])
    tell(*result)


class ProgressListener(Protocol):
    """Whoever shows how far the work is."""

    def begin(self, what: str, samples: int, done: int) -> None: ...

    def tell(self, samples: int, size: int) -> None: ...


@dataclass(frozen=True)
class Packed:
    """The seal, and how much of the work was there before."""

    seal: Seal
    kept: int
    restarted: bool = False


def pack(order: PackRequest, folder: Path, progress: ProgressListener, carry: CarryOut = carry_out) -> Packed:
    """Do what is still to do; a folder that holds the very same job complete is left as it is."""
    form = format_named(order.format)
    job = plan_job(order, open_source(order.source, order.arguments))
    place = ShardFolder(folder)
    with place.alone():
        seal = read_seal(folder)
        if seal and seal.job == job.identity:
            place.close()
            return Packed(seal, job.shards)
        if seal:
            place.close()
            what = f"{folder} holds shards of {seal.source} that were packed otherwise, or before it changed."
            raise UsageError(what, "choose another folder, or delete this one first")
        restarted = _take_up(place, job)
        kept = sum(place.note(PackTask("shard", number).note) is not None for number in range(job.shards))
        if order.normalise:
            _carry_out(place, job, "moments", progress, carry)
        _carry_out(place, job, "shard", progress, carry)
        names = [form.name(number) for number in range(job.shards)]
        seal = _sealed(place, job, form.together(folder, names))
        place.close()
    return Packed(seal, kept, restarted)


def _take_up(place: ShardFolder, job: PackJob) -> bool:
    """Go on with what a cut-off run of the same job left; what is left of another is thrown away."""
    place.throw_away_drafts()
    before = place.note("job")
    if before == job.identity:
        for number in range(job.shards):
            place.recheck(PackTask("shard", number).note)
        return False
    place.start_anew()
    place.write_note("job", job.identity)
    return before is not None


def _carry_out(
    place: ShardFolder, job: PackJob, kind: str, progress: ProgressListener, carry: CarryOut
) -> None:
    tasks = [PackTask(kind, number) for number in range(job.shards)]
    to_do = [task for task in tasks if place.note(task.note) is None]
    left = sum(job.bounds[task.number + 1] - job.bounds[task.number] for task in to_do)
    progress.begin("measuring" if kind == "moments" else "packing", job.samples, job.samples - left)
    if to_do:
        carry(job, place.folder, to_do, progress.tell)


def _sealed(place: ShardFolder, job: PackJob, texts: dict[str, str]) -> Seal:
    """Write what belongs to all shards together, and the seal last."""
    notes: list[dict[str, Any]] = [place.note(PackTask("shard", number).note) for number in range(job.shards)]
    files = {
        name: from_plain(ShardFileInfo, each, name) for note in notes for name, each in note["files"].items()
    }
    if job.order.normalise:
        texts = {**texts, NORMALISATION: json.dumps(_figures(place, job), indent=1) + "\n"}
    draft = place.draft("together")
    for name, text in texts.items():
        (draft / name).write_text(text, encoding="utf-8")
    np.save(draft / CHECKSUMS, np.asarray([crc for note in notes for crc in note["crcs"]], np.uint32))
    files |= {path.name: file_digest(path) for path in sorted(draft.iterdir())}
    place.move_in(draft, "together")
    shards = tuple(Shard(note["name"], len(note["crcs"])) for note in notes)
    seal = Seal(job.order.format, job.identity, job.order.source, job.samples, shards, files, job.template)
    draft = place.draft("seal")
    (draft / SEAL).write_text(seal_text(seal), encoding="utf-8")
    place.move_in(draft, "seal")
    return seal


def _figures(place: ShardFolder, job: PackJob) -> dict[str, Any]:
    moments = joined_moments(place, job)
    return {
        name: {"mean": list(each.mean), "std": list(each.std), "count": each.count}
        for name, each in moments.items()
    }


# Look whether a folder of shards is as it was sealed; what is damaged is named, down to the sample.


MANY = 20
"""Samples of a shard that are named; of more, the count says enough."""


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written, with the keys of the first of the `count` samples that have changed."""

    file: str
    what: str
    samples: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Verified:
    seal: Seal
    damage: tuple[Damage, ...]


def verify(folder: Path) -> Verified:
    """Read every byte; hashing releases the GIL, so threads share the work."""
    seal = read_seal(folder)
    if seal is None:
        remedy = "name a folder that hotlap pack completed; if it was cut off, run the same command again"
        raise UsageError(f"{folder} holds no {SEAL}.", remedy)
    with ThreadPoolExecutor(usable_cores()) as threads:
        faults = list(threads.map(lambda name: _fault(folder, seal, name), seal.files))
    wrong = {name: fault for name, fault in zip(seal.files, faults, strict=True) if fault}
    return Verified(seal, tuple(_damage(folder, seal, wrong)))


def _fault(folder: Path, seal: Seal, name: str) -> str:
    written = seal.files[name]
    try:
        found = file_digest(folder / name)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found.bytes != written.bytes:
        return f"has {found.bytes} bytes, not {written.bytes}"
    return "" if found.sha256 == written.sha256 else "holds other bytes than were written"


def _damage(folder: Path, seal: Seal, wrong: dict[str, str]) -> Iterator[Damage]:
    shards = {each.name: number for number, each in enumerate(seal.shards)}
    crcs = None if CHECKSUMS in wrong else np.load(folder / CHECKSUMS)
    for name, fault in wrong.items():
        if name not in shards or crcs is None or not (folder / name).exists():
            yield Damage(name, fault)
            continue
        keys = list(_changed(folder, seal, shards[name], crcs))
        where = "" if keys else ", outside of every sample"
        yield Damage(name, fault + where, tuple(keys[:MANY]), len(keys))


def _changed(folder: Path, seal: Seal, number: int, crcs: np.ndarray[Any, Any]) -> Iterator[str]:
    """The samples of a shard that no longer have their checksum."""
    shard = seal.shards[number]
    first = sum(each.samples for each in seal.shards[:number])
    try:
        reader = format_named(seal.format).open(folder / shard.name)
        keys = reader.keys
    except HotlapError:
        yield f"all {shard.samples}"
        return
    for row in range(shard.samples):
        try:
            intact = checksum(reader.read(row)) == crcs[first + row]
        except (HotlapError, ValueError, IndexError, KeyError):
            intact = False
        if not intact:
            yield keys[row] if row < len(keys) else f"number {row}"
