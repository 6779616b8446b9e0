"""Reads what the probe left behind and makes it a Timeline per training process."""

from __future__ import annotations

import ast
import linecache
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hotlap.cost.roofline import roof_of
from hotlap.facts import codec
from hotlap.facts.timeline import (
    Ending,
    Gauge,
    HotLine,
    ProbeCost,
    SourceLine,
    Stage,
    Timeline,
    Warmup,
    WorkerFacts,
)
from hotlap.host.looks import LookRecord
from hotlap.launch.holding import Clock, read_clock
from hotlap.probe import boundary
from hotlap.probe.marks import DEVICE_TIMES, VALUE_FROM, WINDOW_END, Kind
from hotlap.probe.sampler import LINE_BITS
from hotlap.source.files import SourceFile, UnreadableError
from hotlap.source.values import merged
from hotlap.stats.robust import steady_from
from hotlap.timeline import describe
from hotlap.timeline.fold import book_device, booked_from, fold, with_device_memory
from hotlap.timeline.operators import read_operators
from hotlap.timeline.segments import STAGES, Folded
from hotlap.timeline.workers import combine, project_startups, tally

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
    steps = seen.columns.steps()
    # Of the first steps only the host's side is known, where a device is timed from its first use on.
    booked = booked_from(seen, recording.marks)
    steady = steady_from(steps.wall, seen.columns.compiled)
    steady = max(steady, booked) if booked < len(steps) // 2 else steady
    since = steps.start[steady] if steady < len(steps) else seen.last
    device = book_device(seen, recording.marks, since)
    workers, worker_lines = _workers(recording, recordings, seen, since)
    runtime = facts.get("runtime") or {}
    comm, switches = describe.exchanges(seen, since), describe.runtime(facts)
    return Timeline(
        rank=_first(runtime.get("rank"), facts.get("rank"), 0),
        world=_first(runtime.get("world"), facts.get("world"), 1),
        pid=recording.pid,
        ending=Ending.WINDOW if facts.get("window_done") else ending,
        steps=steps,
        steady_from=steady,
        warmup=_warmup(seen, steady),
        runtime=switches,
        probe=_probe_cost(recording, seen),
        model=describe.model(facts, seen),
        loaders=describe.loaders(facts, seen, _worker_threads(facts, recordings)),
        workers=workers,
        optimizers=describe.optimizers(facts, seen),
        lines=tuple(_main_lines(recording, seen, since) + worker_lines),
        syncs=describe.syncs(facts, seen),
        cadences=describe.cadences(steps, steady, facts),
        gauges=with_device_memory(
            [g for g in gauges if g.t <= facts.get("window_end", end)], recording.marks
        ),
        pauses=describe.pauses(seen.overlays[Kind.COLLECT], seen.overlays[Kind.COMPILE], since),
        epochs=max((each.get("epochs", 0) for each in facts.get("loaders", ())), default=0),
        boundary=seen.boundary,
        inferred=seen.inferred,
        comm_s=sum(comm.values()) if comm else None,
        comm_stages=comm,
        ops=boundary.attempt(read_operators, recording.trace),
        roof=roof_of(switches.accelerator, facts.get("cpu_flops") or {}, facts.get("cpu_bandwidth")),
        device=device,
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
    sampler = recording.facts.get("sampler") or {}
    table, looks = sampler.get("lines", ()), sampler.get("values", ())
    return hot_lines(recording.samples, table, seen.spans, since, "main", looks)


def _workers(
    main: Recording, recordings: Sequence[Recording], seen: Folded, since: int
) -> tuple[tuple[WorkerFacts, ...], list[HotLine]]:
    made_here = tally(main.marks, since)
    by_pid = {each.pid: each for each in recordings}
    workers: list[WorkerFacts] = []
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
) -> tuple[list[WorkerFacts], list[HotLine]]:
    tallies = tally(recording.marks)
    if -1 not in tallies:
        return [], []
    own = tallies[-1]
    begun = max((start for start in starts if start <= own.first), default=own.first)
    sampler = recording.facts.get("sampler") or {}
    table, looks = sampler.get("lines", ()), sampler.get("values", ())
    lines = hot_lines(recording.samples, table, own.spans, 0, "worker", looks)
    return [own.worker(loader, number, own.first - begun)], lines


def _probe_cost(recording: Recording, seen: Folded) -> ProbeCost:
    facts = recording.facts
    steps = max(1, len(seen.columns.wall) + seen.dropped_steps)
    marks = max(facts.get("marks", 0), len(recording.marks))
    sampler_ns = _sampler_ns(facts.get("sampler") or {}, recording.samples, seen)
    laps_ns = facts.get("device_laps", 0) * facts.get("device_lap_ns", 0)
    spent = marks * facts.get("mark_ns", _MARK_NS) + laps_ns + sampler_ns
    wall = max(1, seen.last - seen.first)
    return ProbeCost(
        per_step_s=spent / steps / 1e9,
        share=spent / wall,
        marks_per_step=marks / steps,
        bytes=(len(recording.marks) + len(recording.samples)) * 8,
        dropped_steps=seen.dropped_steps,
        faults=tuple(facts.get("faults", ())),
    )


def _sampler_ns(facts: Mapping[str, Any], samples: Sequence[int], seen: Folded) -> float:
    """CPU time of the sampler during the window: it also samples before, and while experiments run."""
    within = sum(seen.first <= (sample >> LINE_BITS) * 1000 <= seen.last for sample in samples)
    every = max(within, facts.get("samples", 0))
    spent: float = facts.get("cpu_ns", 0)
    return spent * within / every if every else spent


def _facts(folder: Path, pid: int) -> Mapping[str, Any]:
    try:
        facts = codec.parse_json((folder / f"{pid}.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _first(*candidates: Any) -> int:
    return next(int(each) for each in candidates if each is not None)


def timelines_in(
    folder: Path, until: int, ending: Ending, origin: int, looks: LookRecord
) -> tuple[Timeline, ...]:
    """The timelines of what the probe has written up to a moment of the clock."""
    clock, recordings = read_clock(folder), read_recordings(folder)

    def rebased(gauge: Gauge) -> Gauge:
        return replace(gauge, t=clock.at(gauge.t - origin))

    gauges = {each.pid: [rebased(gauge) for gauge in looks.gauges(each.pid)] for each in recordings}
    return timelines(recordings, ending, clock.at(until - origin), gauges)


# What belongs to the measured window: phases that follow it leave marks and samples too, in workers as well.


def marks_within(raw: array[int], end: int | None) -> array[int]:
    """The marks up to the window's end: a moment, or where that was not told, the mark itself.

    What a device did in the window is written down when it is through, which may be later.
    """
    for index, mark in enumerate(raw):
        code = mark & 255
        if code == WINDOW_END or (end is not None and code < VALUE_FROM and mark >> 8 > end):
            return raw[:index] + array("q", (late for late in raw[index:] if late & 255 in DEVICE_TIMES))
    return raw


def samples_within(raw: array[int], end: int | None) -> array[int]:
    """The stack samples up to the window's end."""
    if end is None:
        return raw
    after = (index for index, sample in enumerate(raw) if (sample >> LINE_BITS) * 1000 > end)
    return raw[: next(after, len(raw))]


# From stack samples to hot lines: each sample gets the stage that its moment fell into.


_MOST_PER_STAGE = 12
_MOST_TEXT = 160
Span = tuple[int, int, int]


def hot_lines(
    samples: Sequence[int],
    table: Sequence[Sequence[Any]],
    spans: Sequence[Span],
    since: int,
    role: str,
    looks: Sequence[Sequence[Any]] = (),
) -> list[HotLine]:
    """The lines that held most samples of each stage, from the moment `since` on. `looks` are at their values."""
    values = {(file, line): merged(several) for file, line, several in looks}
    counts: dict[Stage, Counter[int]] = {}
    for stage, line in _placed(samples, spans, since):
        if line < len(table):
            counts.setdefault(stage, Counter())[line] += 1
    found = [line for stage, rows in counts.items() for line in _top(stage, rows, table, role)]
    return [replace(each, values=values.get((each.place.file, each.place.line), {})) for each in found]


def merge(groups: Iterable[Sequence[HotLine]]) -> list[HotLine]:
    """Lines of several processes in the same role, as one list; a line is one, whatever function each saw it in."""
    groups = list(groups)
    sums: Counter[tuple[Stage, str]] = Counter()
    several: dict[tuple[Stage, str, str, int], list[HotLine]] = {}
    for group in groups:
        for line in group:
            several.setdefault((line.stage, line.role, line.place.file, line.place.line), []).append(line)
        first = {(line.stage, line.role): line for line in reversed(group)}
        for key, line in first.items():
            sums[key] += round(line.samples / line.share)
    merged_lines = [_as_one(lines, sums[stage, role]) for (stage, role, *_), lines in several.items()]
    return sorted(merged_lines, key=lambda line: -line.samples)


def _as_one(lines: Sequence[HotLine], total: int) -> HotLine:
    """What it calls is what most of its samples show."""
    count = sum(line.samples for line in lines)
    seen: Counter[tuple[SourceLine, str, str]] = Counter()
    for line in lines:
        seen[line.place, line.callee, line.inner] += line.samples
    place, callee, inner = seen.most_common(1)[0][0]
    values = merged([line.values for line in lines])
    return replace(
        lines[0], place=place, callee=callee, inner=inner, share=count / total, samples=count, values=values
    )


def _placed(samples: Sequence[int], spans: Sequence[Span], since: int) -> Iterable[tuple[Stage, int]]:
    starts = [span[0] for span in spans]
    for sample in samples:
        moment, line = (sample >> LINE_BITS) * 1000, sample & ((1 << LINE_BITS) - 1)
        index = bisect_right(starts, moment) - 1
        if moment >= since and index >= 0 and moment < spans[index][1]:
            yield STAGES[spans[index][2]], line


def _top(stage: Stage, rows: Counter[int], table: Sequence[Sequence[Any]], role: str) -> Iterable[HotLine]:
    """One entry per line. What it calls, and the innermost function, are those of most of its samples."""
    total = rows.total()
    lines: Counter[tuple[str, int]] = Counter()
    details: dict[tuple[str, int], Counter[tuple[str, str, str]]] = {}
    for row, count in rows.items():
        file, number, function, callee, inner = table[row]
        lines[file, number] += count
        details.setdefault((file, number), Counter())[function, callee, inner] += count
    for (file, number), count in lines.most_common(_MOST_PER_STAGE):
        function, callee, inner = details[file, number].most_common(1)[0][0]
        text = linecache.getline(file, number).strip()[:_MOST_TEXT]
        place, looped = SourceLine(file, number, function, text), _in_loop(file, number)
        yield HotLine(place, callee, stage, count / total, count, role, inner, looped=looped)


def _in_loop(file: str, number: int) -> bool:
    """Whether the line is in the body of a loop of its own function."""
    source = _source(file)
    if source is None:
        return False
    loops = (
        each for each in ast.walk(source.function_at(number).node) if isinstance(each, ast.For | ast.While)
    )
    return any(each.body[0].lineno <= number <= (each.body[-1].end_lineno or 0) for each in loops)


@lru_cache(maxsize=64)
def _source(file: str) -> SourceFile | None:
    try:
        return SourceFile.read(Path(file))
    except UnreadableError:
        return None
