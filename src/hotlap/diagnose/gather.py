"""Reads what the probe left behind and makes it a Timeline per training process."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hotlap.diagnose import aftermath, describe
from hotlap.diagnose.columns import Folded
from hotlap.diagnose.device import book_waits, with_device_memory
from hotlap.diagnose.fold import fold
from hotlap.diagnose.lines import hot_lines, merge
from hotlap.diagnose.operators import read_operators
from hotlap.diagnose.tally import combine, project_startups, tally
from hotlap.diagnose.window import marks_within, samples_within
from hotlap.facts.timeline import Ending, Gauge, HotLine, ProbeCost, Timeline, Warmup, Worker
from hotlap.launch.pauses import Clock, read_clock
from hotlap.probe import boundary
from hotlap.probe.marks import Kind
from hotlap.stats.steady import steady_from

_CUT_OFF = (Ending.INTERRUPTED, Ending.CRASHED, Ending.KILLED)
_MOMENTS = ("attached_at", "window_end", "ended_at")
_MARK_NS = 500  # an assumed cost of a mark, for a run too short to calibrate it


@dataclass(frozen=True)
class Recording:
    """The files of one process."""

    pid: int
    facts: Mapping[str, Any]
    marks: array[int]
    samples: array[int]
    trace: Path | None = None

    @property
    def is_worker(self) -> bool:
        return self.facts.get("role") == "worker"


def read_recordings(folder: Path) -> list[Recording]:
    """All processes that left marks, also those that were killed before they could describe themselves."""
    pids = sorted(int(path.stem) for path in folder.glob("*.marks") if path.stem.isdigit())
    clock = read_clock(folder)
    found = [_recording(folder, pid, clock) for pid in pids]
    ends = {each.pid: each.facts["window_end"] for each in found if "window_end" in each.facts}
    return [_within_window(each, ends.get(each.pid, ends.get(each.facts.get("parent", 0)))) for each in found]


def _recording(folder: Path, pid: int, clock: Clock) -> Recording:
    facts = _facts(folder, pid)
    return Recording(
        pid,
        {**facts, **{name: clock.at(facts[name]) for name in _MOMENTS if name in facts}},
        clock.marks(read_integers(folder / f"{pid}.marks")),
        clock.samples(read_integers(folder / f"{pid}.samples")),
        folder / f"{pid}.trace.json",
    )


def _within_window(recording: Recording, end: int | None) -> Recording:
    marks, samples = marks_within(recording.marks, end), samples_within(recording.samples, end)
    return replace(recording, marks=marks, samples=samples)


def read_integers(path: Path) -> array[int]:
    """The whole numbers of a file; a torn last one is left away."""
    values = array("q")
    if path.is_file():
        content = path.read_bytes()
        values.frombytes(content[: len(content) // 8 * 8])
    return values


def timelines(
    recordings: Sequence[Recording], ending: Ending, end: int, gauges: Mapping[int, Sequence[Gauge]]
) -> tuple[Timeline, ...]:
    """A timeline per rank; of several processes of one rank (a script run twice) the one with the most steps."""
    by_rank: dict[int, Timeline] = {}
    for recording in recordings:
        if recording.is_worker:
            continue
        # A recording that cannot be read must not take those of other ranks with it.
        own = gauges.get(recording.pid, ())
        timeline = boundary.attempt(_timeline, recording, recordings, ending, end, own)
        known = by_rank.get(timeline.rank) if timeline else None
        if timeline and len(timeline.steps) and (known is None or len(known.steps) < len(timeline.steps)):
            by_rank[timeline.rank] = timeline
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def _timeline(
    recording: Recording, recordings: Sequence[Recording], ending: Ending, end: int, gauges: Sequence[Gauge]
) -> Timeline:
    facts = recording.facts
    done = facts.get("window_done", False)
    cut_off = not done and ending in _CUT_OFF
    seen = fold(recording.marks, None if done else facts.get("ended_at", end), cut_off=cut_off)
    book_waits(seen, recording.marks)
    steps = seen.columns.steps()
    steady = steady_from(steps.wall, seen.columns.compiled)
    since = steps.start[steady] if steady < len(steps) else seen.last
    workers, worker_lines = _workers(recording, recordings, seen, since)
    runtime = facts.get("runtime") or {}
    return Timeline(
        rank=_first(runtime.get("rank"), facts.get("rank"), 0),
        world=_first(runtime.get("world"), facts.get("world"), 1),
        pid=recording.pid,
        ending=Ending.WINDOW if facts.get("window_done") else ending,
        steps=steps,
        steady_from=steady,
        warmup=_warmup(seen, steady),
        runtime=describe.runtime(facts),
        probe=_probe_cost(recording, seen),
        model=describe.model(facts, seen),
        loaders=describe.loaders(facts, seen, _worker_threads(facts, recordings)),
        workers=workers,
        optimizers=describe.optimizers(facts, seen),
        lines=tuple(_main_lines(recording, seen, since) + worker_lines),
        syncs=describe.syncs(facts, seen),
        cadences=describe.cadences(steps, steady),
        gauges=with_device_memory(
            [g for g in gauges if g.t <= facts.get("window_end", end)], recording.marks
        ),
        pauses=describe.pauses(seen.overlays[Kind.COLLECT], seen.overlays[Kind.COMPILE], since),
        epochs=max((each.get("epochs", 0) for each in facts.get("loaders", ())), default=0),
        boundary=seen.boundary,
        inferred=seen.inferred,
        comm_s=_comm_seconds(seen, since),
        ops=boundary.attempt(read_operators, recording.trace),
        free_input_s=aftermath.free_input(facts),
        free_input_range_s=aftermath.free_input_range(facts),
        rehearsals=aftermath.rehearsals(facts),
    )


def _warmup(seen: Folded, steady: int) -> Warmup:
    compiles = seen.overlays[Kind.COMPILE]
    return Warmup(
        startup_s=seen.first / 1e9,
        steps=steady,
        seconds=sum(seen.columns.wall[:steady]) / 1e9,
        compile_s=sum(end - start for start, end in compiles) / 1e9,
        compiles=len(compiles),
    )


def _main_lines(recording: Recording, seen: Folded, since: int) -> list[HotLine]:
    table = (recording.facts.get("sampler") or {}).get("lines", ())
    return hot_lines(recording.samples, table, seen.spans, since, "main")


def _workers(
    main: Recording, recordings: Sequence[Recording], seen: Folded, since: int
) -> tuple[tuple[Worker, ...], list[HotLine]]:
    made_here = tally(main.marks, since)
    by_pid = {each.pid: each for each in recordings}
    workers: list[Worker] = []
    lines: list[list[HotLine]] = []
    for place, loader in enumerate(describe.known_loaders(main.facts)):
        portrait = main.facts["loaders"][loader]
        starts = seen.loaders[loader].starts if loader in seen.loaders else []
        rows = [made_here[loader].worker(place, -1)] if loader in made_here else []
        for pid, number in portrait.get("worker_pids", {}).items():
            recording = by_pid.get(int(pid))
            if recording is not None:
                worker, hot = _worker(recording, place, number, starts)
                rows += worker
                lines.append(hot)
        workers += project_startups(combine(rows), portrait.get("worker_starts", 0))
    return tuple(workers), merge(lines)


def _worker_threads(facts: Mapping[str, Any], recordings: Sequence[Recording]) -> dict[int, int]:
    """Threads that computed in each worker of a loader, where a worker said so before its end."""
    counted = {str(each.pid): each.facts["threads"] for each in recordings if "threads" in each.facts}
    found = {}
    for number, portrait in enumerate(facts.get("loaders", ())):
        threads = [counted[pid] for pid in portrait.get("worker_pids", ()) if pid in counted]
        if threads:
            found[number] = max(threads)
    return found


def _worker(
    recording: Recording, loader: int, number: int, starts: Sequence[int]
) -> tuple[list[Worker], list[HotLine]]:
    tallies = tally(recording.marks)
    if -1 not in tallies:
        return [], []
    own = tallies[-1]
    begun = max((start for start in starts if start <= own.first), default=own.first)
    table = (recording.facts.get("sampler") or {}).get("lines", ())
    lines = hot_lines(recording.samples, table, own.spans, 0, "worker")
    return [own.worker(loader, number, own.first - begun)], lines


def _probe_cost(recording: Recording, seen: Folded) -> ProbeCost:
    facts = recording.facts
    steps = max(1, len(seen.columns.wall) + seen.dropped_steps)
    marks = max(facts.get("marks", 0), len(recording.marks))
    sampler_ns = (facts.get("sampler") or {}).get("cpu_ns", 0)
    spent = marks * facts.get("mark_ns", _MARK_NS) + sampler_ns
    wall = max(1, seen.last - seen.first)
    return ProbeCost(
        per_step_s=spent / steps / 1e9,
        share=spent / wall,
        marks_per_step=marks / steps,
        bytes=(len(recording.marks) + len(recording.samples)) * 8,
        dropped_steps=seen.dropped_steps,
        faults=tuple(facts.get("faults", ())),
    )


def _comm_seconds(seen: Folded, since: int) -> float | None:
    spent = [end - start for start, end in seen.overlays[Kind.COMM] if start >= since]
    return sum(spent) / 1e9 if spent else None


def _facts(folder: Path, pid: int) -> Mapping[str, Any]:
    try:
        facts = json.loads((folder / f"{pid}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _first(*candidates: Any) -> int:
    return next(int(each) for each in candidates if each is not None)
