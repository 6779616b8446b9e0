"""Looks at a run folder from outside, again and again: one plain view of the job each time.

Nothing here raises for what it finds: a file that is missing, torn or not ours becomes a line in `problems`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.facts.job import Job
from hotlap.launch import runfolder
from hotlap.launch.counter import counted
from hotlap.launch.vitals import Vitals
from hotlap.watch.live import state as states
from hotlap.watch.live.progress import progress
from hotlap.watch.live.stages import Fold, lately
from hotlap.watch.live.state import State
from hotlap.watch.live.tail import Tail
from hotlap.watch.live.told import Told, is_sound, told

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
            return {**stored, "state": str(State.ENDED), "problems": self._problems}
        view = self._view(tail, ended)
        if view["state"] in (State.ENDED, State.GONE) and not view["steps"] and self._last:
            view = {**self._last, "state": view["state"], "problems": self._problems}
        self._last = view
        return view

    def _view(self, tail: Tail | None, ended: bool) -> dict[str, Any]:
        now = time.time()
        recent = self._try(lambda: lately(tail.recent, self._fold), tail.path) if tail else None
        journal = self._journal(tail.pid if tail else None)
        pid = tail.pid if tail else journal.pid or self._counted()[0]
        age = self._age(tail, now)
        alive = pid is not None and not ended and states.is_alive(pid, now - (age or 0.0))
        step_s = recent["step_ms"] / 1e3 if recent else None
        state = State.ENDED if ended else states.state_of(self.run, alive=alive, age_s=age, step_s=step_s)
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
            job = Job(tuple(found["argv"]), found["cwd"], found["name"]) if found else None
        except (KeyError, TypeError):
            self._problem(self.run / "job.json", "is of no job")
            job = None
        return {"name": job.name, "shown": job.shown} if job else None

    def _exit_code(self) -> int | None:
        path = self.run / runfolder.APPLIED
        found = self._mapping(path) if path.is_file() else None
        code = found.get("exit_code") if found else None
        return code if isinstance(code, int) else None

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
    return json.loads(path.read_text(encoding="utf-8"))


def _drift(tail: Tail | None) -> dict[str, Any] | None:
    if tail is None:
        return None
    word = tail.drift.word()
    return {"state": word.state, "since": word.since, **word.figures, "series": list(word.series)}
