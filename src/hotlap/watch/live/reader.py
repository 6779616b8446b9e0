"""Looks at a run folder from outside, again and again: one plain view of the job each time.

Nothing here raises for what it finds: a file that is missing, torn or not ours becomes a line in `problems`.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from hotlap.errors import FactError
from hotlap.facts import codec
from hotlap.facts.job import Job
from hotlap.host.vitals import Vitals
from hotlap.launch import runfolder
from hotlap.launch.environment import counted
from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.stats.robust import of_ordered
from hotlap.units import NS_PER_S
from hotlap.watch.monitors import ThroughputDrift

KEPT = 1 << 15  # marks: some thousand steps, or a few hundred of a script with many parts
_AT_ONCE = 1 << 22  # bytes
_STEP, _BACKWARD = marks.leave(Kind.STEP), marks.leave(Kind.BACKWARD)


class Tail:
    """Of one process. A file that was begun anew (a job that was started again) is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = int(path.stem)
        self._begin()

    def _begin(self) -> None:
        self.recent = array("q")
        self.drift = ThroughputDrift()
        self.dropped = 0
        self.last_ns = 0
        self._offset = 0
        self._made: Counter[int] = Counter()
        self._most = 0
        self._passes = 0

    @property
    def steps(self) -> int:
        """Of the optimizer that steps most often, or backward passes where there is none."""
        return (self._most or self._passes) + self.dropped

    def read(self) -> None:
        if self.path.stat().st_size < self._offset:
            self._begin()
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while content := file.read(_AT_ONCE):
                whole = len(content) // 8 * 8
                if not whole:
                    break
                self._offset += whole
                values = array("q")
                values.frombytes(content[:whole])
                self._take(values)
                file.seek(self._offset)

    def _take(self, values: array[int]) -> None:
        for value in values:
            code = value & 255
            if code in (_STEP, _BACKWARD):
                self.last_ns = value >> 8
                if code == _BACKWARD:
                    self._passes += 1
            elif code == marks.OPTIMIZER_ID:
                self._step_made(value >> 8)
            elif code == marks.CONTINUES:
                self._passes -= 1
            elif code == marks.DROPPED:
                self.dropped += value >> 8
                self.drift.pause()
        self.recent.extend(values)
        del self.recent[: max(0, len(self.recent) - KEPT)]

    def _step_made(self, optimizer: int) -> None:
        self._made[optimizer] += 1
        if self._made[optimizer] > self._most:
            self._most = self._made[optimizer]
            self.drift.add(self.steps, self.last_ns / NS_PER_S)


JOURNAL = "*.watch.json"
PICTURES = (".png",)
_MOST_PROBLEMS = 8
_MOST_BYTES = 1 << 22  # of a small file that we wrote; what is larger is not ours


class LiveReader:
    """Keeps what it has read, so that each look costs little however long the job runs."""

    def __init__(self, run: Path, fold: Fold) -> None:
        self.run = run
        self._fold = fold
        self._tails: dict[Path, Tail] = {}
        self._vitals: Vitals | None = None
        self._problems: list[str] = []
        self._last: dict[str, Any] = {}

    def look(self, *, ended: bool = False) -> dict[str, Any]:
        """The job now; `ended` says that it is known to be over, by the process that started it."""
        self._problems = []
        tail = self._busiest()
        stored = None if ended else self._stored()
        if tail is None and stored is not None:
            return {**stored, "state": str(RunState.ENDED), "problems": self._problems}
        view = self._view(tail, ended)
        if view["state"] in (RunState.ENDED, RunState.GONE) and not view["steps"] and self._last:
            view = {**self._last, "state": view["state"], "problems": self._problems}
        self._last = view
        return view

    def _view(self, tail: Tail | None, ended: bool) -> dict[str, Any]:
        now = time.time()
        recent = self._try(lambda: lately(tail.recent, self._fold), tail.path) if tail else None
        journal = self._journal(tail.pid if tail else None)
        pid = tail.pid if tail else journal.pid or self._counted()[0]
        age = self._age(tail, now)
        alive = pid is not None and not ended and is_alive(pid, now - (age or 0.0))
        step_s = recent["step_ms"] / 1e3 if recent else None
        state = RunState.ENDED if ended else state_of(self.run, alive=alive, age_s=age, step_s=step_s)
        steps = max(tail.steps if tail else 0, journal.steps or 0, self._counted()[1])
        return {
            "state": str(state),
            "run": str(self.run),
            "job": self._job(),
            "pid": pid,
            "age_s": age,
            "steps": steps,
            "lately": recent,
            "drift": _drift(tail),
            "usage": self._usage(pid) if alive else None,
            "exit_code": self._exit_code(),
            "progress": progress(journal, steps, recent["steps_per_s"] if recent else None),
            "monitors": dict(journal.monitors),
            "cost": journal.cost,
            "pictures": self._pictures(),
            "problems": self._problems[:_MOST_PROBLEMS],
        }

    def _busiest(self) -> Tail | None:
        folder = runfolder.probe_folder(self.run)
        there = {path for path in folder.glob("*.marks") if path.stem.isdigit()} if folder.is_dir() else set()
        for path in there:
            tail = self._tails.setdefault(path, Tail(path))
            self._try(tail.read, path)
        self._tails = {path: tail for path, tail in self._tails.items() if path in there}
        return max(self._tails.values(), key=lambda tail: tail.steps, default=None)

    def _age(self, tail: Tail | None, now: float) -> float | None:
        paths = [tail.path] if tail else list(runfolder.probe_folder(self.run).glob("*.*"))
        times = [mtime for path in paths if (mtime := self._mtime(path)) is not None]
        return max(0.0, now - max(times)) if times else None

    def _mtime(self, path: Path) -> float | None:
        try:
            return path.stat().st_mtime
        except OSError:
            return None

    def _counted(self) -> tuple[int | None, int]:
        """Process and steps of a run without a probe."""
        folder = runfolder.probe_folder(self.run)
        found = (self._try(lambda: counted(folder), folder) if folder.is_dir() else None) or {}
        pid = max(found, key=lambda each: found[each].steps, default=None)
        return (None, 0) if pid is None else (pid, found[pid].steps)

    def _journal(self, pid: int | None) -> Told:
        """Of the process that trains, or of any where that one has none."""
        paths = sorted(runfolder.probe_folder(self.run).glob(JOURNAL))
        own = [path for path in paths if pid is None or path.name.partition(".")[0] == str(pid)]
        return told(next((found for path in own or paths if (found := self._mapping(path))), {}))

    def _stored(self) -> dict[str, Any] | None:
        path = self.run / runfolder.LAST_LOOK
        found = self._mapping(path) if path.is_file() else None
        if not found:
            return None
        if not is_sound(found):
            self._problem(path, "is no view of a job")
            return None
        seen = told(found)
        own = {
            "monitors": seen.monitors,
            "cost": seen.cost,
            "run": str(self.run),
            "pictures": self._pictures(),
        }
        return {**found, **own}

    def _job(self) -> dict[str, Any] | None:
        found = self._mapping(self.run / "job.json")
        try:
            job: Job | None = codec.from_plain(Job, found) if found else None
        except FactError:
            self._problem(self.run / "job.json", "is of no job")
            job = None
        return {"name": job.name, "shown": job.shown} if job else None

    def _exit_code(self) -> int | None:
        path = self.run / runfolder.APPLIED
        found = self._mapping(path) if path.is_file() else None
        code = found.get("exit_code") if found else None
        return code if isinstance(code, int) and code in range(1 << 32) else None  # Windows has as many

    def _usage(self, pid: int | None) -> dict[str, Any] | None:
        """Memory and cores of the job; the first look only sets the mark."""
        if pid is None:
            return None
        if self._vitals is None:
            self._vitals = Vitals(pid)
            time.sleep(0.1)
        look = self._vitals.look()
        gauge = look.gauge(pid) if look is not None else None
        if gauge is None:
            return None
        names = ("rss", "tree_rss", "cpu", "workers_cpu", "foreign_cpu", "gpu_busy", "gpu_memory")
        return {name: getattr(gauge, name) for name in names}

    def _pictures(self) -> list[str]:
        try:
            names = [path.name for path in self.run.iterdir() if path.suffix in PICTURES]
        except OSError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    def _mapping(self, path: Path) -> Mapping[str, Any] | None:
        found = self._try(lambda: _read_json(path), path)
        if found is not None and not isinstance(found, dict):
            self._problem(path, "holds no object")
        return found if isinstance(found, dict) else None

    def _try(self, read: Any, path: Path) -> Any:
        try:
            return read()
        except FileNotFoundError:
            return None  # of a job that has just ended
        except Exception as error:
            self._problem(path, f"{type(error).__name__}: {error}")
            return None

    def _problem(self, path: Path, what: str) -> None:
        self._problems.append(f"{path.name}: {what}"[:200])


def _read_json(path: Path) -> Any:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.stat().st_size} bytes are too many")
    return codec.parse_json(path.read_bytes())


def _drift(tail: Tail | None) -> dict[str, Any] | None:
    if tail is None:
        return None
    word = tail.drift.word()
    return {"state": word.state, "since": word.since, **word.figures, "series": list(word.series)}


# How far a job is, and what is left: of the whole training where its framework says so, else of this epoch.


def progress(journal: Told, steps: int, rate: float | None) -> dict[str, Any] | None:
    """`done` of `total` optimizer steps, the epoch where that is what is known, and seconds left; None if unknown."""
    notes = journal.notes
    total = notes.get("total")
    if isinstance(total, int) and total > 0:
        done = min(steps, total)
        return {"done": done, "total": total, "epoch": None, "left_s": _left(total - done, rate)}
    epoch = _training_epoch(notes.get("epochs"))
    if epoch is None:
        return None
    batches, begun, at_step = epoch
    passes = notes.get("passes") if isinstance(notes.get("passes"), int) else 1
    total = max(1, batches // max(1, passes or 1))
    made = steps if journal.steps is None else journal.steps  # of the same moment as the epoch's beginning
    done = min(max(0, made - at_step), total)
    return {"done": done, "total": total, "epoch": begun, "left_s": _left(total - done, rate)}


def _training_epoch(epochs: Any) -> tuple[int, int, int] | None:
    """Batches, number and first step of the longest loader: validation has fewer batches."""
    if not isinstance(epochs, Mapping):
        return None
    known = [
        (int(length), int(each["begun"]), int(each["at_step"]))
        for length, each in epochs.items()
        if length.isdigit() and isinstance(each, Mapping) and {"begun", "at_step"} <= each.keys()
    ]
    return max(known, default=None)


def _left(steps: int, rate: float | None) -> float | None:
    return steps / rate if rate else None


# Where the time of the last steps went, from the end of a file of marks.


Fold = Callable[[Sequence[int]], Any]
_FIRST_LOOK = 1 << 12  # marks: folding them takes some ten milliseconds
_ENOUGH = 20  # steps
_LATELY_S = 10.0


def lately(recent: array[int], fold: Fold) -> dict[str, Any] | None:
    """Rate, step time and stages of the last seconds; None before two whole steps were seen."""
    size = _FIRST_LOOK
    steps: Any = None
    while True:
        steps = fold(recent[-size:]).columns.steps()
        if len(steps) > _ENOUGH or size >= len(recent):
            break
        size *= 4
    first = _first_of_lately(steps.wall)
    walls = steps.wall[first:]
    if len(walls) < 1:
        return None
    return _described(steps, first, walls)


def _first_of_lately(walls: Sequence[int]) -> int:
    """The first step is not whole: the marks before it are cut off."""
    total, first = 0, len(walls)
    while first > 1 and (total < _LATELY_S * NS_PER_S or len(walls) - first < _ENOUGH):
        first -= 1
        total += walls[first]
    return first


def _described(steps: Any, first: int, walls: Sequence[int]) -> dict[str, Any]:
    seconds = sum(walls) / NS_PER_S
    ordered = sorted(walls)
    samples = [each for each in steps.samples[first:] if each >= 0]
    stages = {
        str(stage): sum(times[first:]) / NS_PER_S / max(seconds, 1e-12)
        for stage, times in steps.stages.items()
    }
    return {
        "steps": len(walls),
        "seconds": seconds,
        "steps_per_s": len(walls) / max(seconds, 1e-12),
        "samples_per_s": sum(samples) / max(seconds, 1e-12) if len(samples) == len(walls) else None,
        "step_ms": of_ordered(ordered, 0.5) / 1e6,
        "p95_ms": of_ordered(ordered, 0.95) / 1e6,
        "stages": stages,
    }


# Whether a job runs: from its process, and from what its run folder holds by now.


_ENDINGS = (runfolder.LAST_LOOK, runfolder.APPLIED, "diagnosis.json")
_PATIENCE_S = 20.0
"""After the last process of a job has gone, its report is written: only when none comes, the job was killed."""
_STALLED_S, _STALLED_STEPS = 60.0, 20.0


class RunState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STALLED = "stalled"
    ENDING = "ending"
    ENDED = "ended"
    KILLED = "killed"
    GONE = "gone"


def is_alive(pid: int, since: float) -> bool:
    """Whether the process is still the one that wrote at `since` (seconds since 1970), and not a later one."""
    try:
        process = psutil.Process(pid)
        dead = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not dead and process.create_time() <= since + 1.0
    except psutil.Error:
        return False


def has_ended(run: Path) -> bool:
    return any((run / name).is_file() for name in _ENDINGS)


def state_of(run: Path, *, alive: bool, age_s: float | None, step_s: float | None) -> RunState:
    """`age_s` is how long ago something was written, None where nothing was; `step_s` what a step takes."""
    if not run.is_dir():
        return RunState.GONE
    if has_ended(run):
        return RunState.ENDED
    if not alive:
        young = age_s is None or age_s < _PATIENCE_S
        return (RunState.WAITING if age_s is None else RunState.ENDING) if young else RunState.KILLED
    slow = max(_STALLED_S, _STALLED_STEPS * (step_s or 0.0))
    return RunState.STALLED if age_s is not None and age_s > slow else RunState.RUNNING


# What the monitors of a job have told, as far as it has the form that they give it; all else is left out.


@dataclass(frozen=True)
class Told:
    """A journal, read from outside."""

    pid: int | None = None
    steps: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    monitors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cost: Mapping[str, float] | None = None


def told(journal: Mapping[str, Any]) -> Told:
    cost = _mapping(journal.get("cost"))
    figures = {name: each for name in ("share", "spent") if isinstance(each := cost.get(name), int | float)}
    return Told(
        pid=_whole(journal.get("pid")),
        steps=_whole(journal.get("steps")),
        notes=_mapping(journal.get("notes")),
        monitors={
            str(name): _word(each)
            for name, each in _mapping(journal.get("monitors")).items()
            if isinstance(each, Mapping) and isinstance(each.get("state"), str)
        },
        cost=figures if len(figures) == 2 else None,
    )


def _word(word: Mapping[str, Any]) -> dict[str, Any]:
    figures = _mapping(word.get("figures"))
    series = word.get("series")
    return {
        "state": word["state"],
        "gravity": str(word.get("gravity")),
        "since": _whole(word.get("since")),
        "figures": {name: each for name, each in figures.items() if isinstance(each, int | float | str)},
        "series": series if isinstance(series, list) else [],
    }


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def is_sound(view: Mapping[str, Any]) -> bool:
    """Whether a stored view has the form of one: its file may have been damaged or made by somebody else."""
    parts = {name: view.get(name) for name in ("lately", "drift", "usage", "progress", "job")}
    if not all(each is None or isinstance(each, Mapping) for each in parts.values()):
        return False
    numbers = [each for part in ("lately", "usage", "progress") for each in _mapping(parts[part]).values()]
    stages = _mapping(_mapping(parts["lately"]).get("stages")).values()
    plain = all(each is None or isinstance(each, int | float | Mapping) for each in numbers)
    drift, job = _mapping(parts["drift"]), _mapping(parts["job"])
    points = drift.get("series", [])
    return (
        _whole(view.get("steps")) is not None
        and plain
        and all(isinstance(each, int | float) for each in stages)
        and (not drift or drift.get("state") in ("learning", "steady", "slower"))
        and isinstance(points, list)
        and all(isinstance(each, list) and len(each) == 2 for each in points)
        and all(isinstance(each, str) for each in job.values())
    )
