"""From raw marks to steps: exposed time per stage, samples and tokens, compiles and pauses.

The end of a step is the end of `step()` of the optimizer that steps most often (the last one among equals), or of one
that steps twice in a row (optimizers that follow one another, in phases or folds). In a script without an optimizer it
is the moment after backward when the next batch begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hotlap.facts.timeline import DeviceTime, Gauge, Stage
from hotlap.probe import marks
from hotlap.probe.marks import (
    DEVICE_ALLOCATED,
    DEVICE_BACKWARD,
    DEVICE_COPY_BEGINS,
    DEVICE_COPY_ENDS,
    DEVICE_FORWARD,
    DEVICE_GAP,
    DEVICE_OPTIMIZER,
    DEVICE_QUEUED,
    DEVICE_RESERVED,
    DEVICE_TRANSFER,
    VALUE_FROM,
    Kind,
)
from hotlap.timeline.segments import (
    GAP,
    STAGE_INDEX,
    STAGES,
    Columns,
    Folded,
    LoaderUse,
    Segment,
    Traits,
    name_gaps,
)

_OVERLAYS = frozenset({Kind.SYNC, Kind.COMPILE, Kind.COLLECT, Kind.COMM, Kind.FETCH, Kind.COLLATE})
_NEXT_STEP = frozenset({Kind.DATA, Kind.LOADER, Kind.FORWARD, Kind.TRANSFER})
_MOMENTS = (marks.EVAL_ON, marks.TRAIN_ON)
# What comes before the first of these is start-up, whatever it prints, moves or schedules.
_BEGINNINGS = frozenset(
    {Kind.DATA, Kind.LOADER, Kind.FORWARD, Kind.EVAL_FORWARD, Kind.BACKWARD, Kind.STEP, Kind.VALIDATE}
)
_BATCH_FACTS = {
    marks.SAMPLES: "samples",
    marks.TOKENS: "tokens",
    marks.PADDED: "padded",
    marks.LOADER_ID: "loader",
    marks.EXHAUSTED: "ends",
}


def fold(raw: Sequence[int], end: int | None = None, *, cut_off: bool = False) -> Folded:
    """Fold the marks of one training process.

    `end` is when the process ended, to close what was still open; `cut_off` says that it did not end by itself: it was
    still training then.
    """
    folding = _Fold(raw)
    folding.feed(raw)
    return folding.finish(end, cut_off)


class _Fold:
    def __init__(self, raw: Sequence[int]) -> None:
        self.optimizer_steps = Counter(mark >> 8 for mark in raw if mark & 255 == marks.OPTIMIZER_ID)
        self.by_optimizer = bool(self.optimizer_steps)
        self.pacemaker = _pacemaker(self.optimizer_steps)
        data = marks.enter(Kind.DATA)
        has_loader = any(mark & 255 == data for mark in raw)
        self.traits = Traits(has_loader=has_loader, has_optimizer=self.by_optimizer)
        self.columns = Columns()
        self.loaders: dict[int, LoaderUse] = {}
        self.overlays: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in _OVERLAYS}
        self.open_overlays: dict[int, int] = {}
        self.sync_places: list[tuple[int, int]] = []
        self.spans: list[tuple[int, int, int]] = []
        self.stack: list[int] = []
        self.segments: list[Segment] = []
        self.fetched: Segment | None = None
        self.at = self.row_start = self.first = self.step_end = self.stepped = -1
        self.micro = self.dropped = 0
        self.compiling = self.blind = self.nested = False

    def feed(self, raw: Iterable[int]) -> None:
        for mark in raw:
            code, value = mark & 255, mark >> 8
            if code >= marks.VALUE_FROM:
                self._fact(code, value)
            elif (kind := code >> 1) in _OVERLAYS:
                self._overlay(kind, code & 1, value)
            elif code & 1:
                self._leave(kind, value)
            else:
                self._enter(kind, value)

    def _enter(self, kind: int, t: int) -> None:
        if self.first < 0:
            if kind not in _BEGINNINGS:
                return
            self.first = self.row_start = self.at = t
        if not self.by_optimizer and self.micro and kind in _NEXT_STEP and not self.stack:
            self._close_row(t)
        self._advance(t)
        self.stack.append(kind)

    def _leave(self, kind: int, t: int) -> None:
        if self.first < 0:
            return
        inner, known = self._innermost(), len(self.segments)
        self._advance(t)
        if kind in self.stack:
            while self.stack.pop() != kind:
                pass
        if kind == Kind.BACKWARD:
            self.nested = Kind.BACKWARD in self.stack  # activations are computed again within a pass
            self.micro += not self.nested
        elif kind == Kind.STEP:
            self.step_end = t
        elif kind in (Kind.DATA, Kind.LOADER):
            if len(self.segments) == known:  # it took no time, and still has facts of its own
                self.segments.append(Segment(t, t, inner))
            self.fetched = self.segments[-1]
            self.fetched.opens = kind == Kind.LOADER

    def _advance(self, t: int) -> None:
        """What ran until `t` was the innermost open kind."""
        if t > self.at:
            if not self.blind:
                self.segments.append(Segment(self.at, t, self._innermost()))
            self.at = t

    def _innermost(self) -> int:
        if not self.stack:
            return GAP
        top = self.stack[-1]
        if Kind.VALIDATE in self.stack and top not in (Kind.LOG, Kind.CHECKPOINT):
            return Kind.VALIDATE
        return top

    def _overlay(self, kind: int, leaving: int, t: int) -> None:
        if not leaving:
            self.open_overlays[kind] = t
            self.compiling = self.compiling or kind == Kind.COMPILE
        elif kind in self.open_overlays:
            self.overlays[Kind(kind)].append((self.open_overlays.pop(kind), t))

    def _fact(self, code: int, value: int) -> None:
        if code in _MOMENTS:
            if self.first >= 0:
                self._advance(value)
                self.segments.append(Segment(value, value, code))
        elif code == marks.OPTIMIZER_ID:
            if value in (self.pacemaker, self.stepped):
                self._close_row(self.step_end)
            self.stepped = value
        elif code == marks.GRADIENTS:
            if self.by_optimizer and not self.nested:
                self.micro = max(0, self.micro - 1)
        elif code == marks.SYNC_PLACE and self.overlays[Kind.SYNC]:
            self.sync_places.append((value, self.overlays[Kind.SYNC][-1][0]))
        elif code == marks.DROPPED:
            self._skip(value)
        elif code in _BATCH_FACTS and self.fetched is not None:
            setattr(self.fetched, _BATCH_FACTS[code], value)

    def _skip(self, steps: int) -> None:
        """Marks are missing here: what was open is unknown, the step under way is given up."""
        self.dropped += steps
        self.stack.clear()
        self.segments.clear()
        self.open_overlays.clear()
        self.fetched = None
        self.step_end = -1
        self.micro = 0
        self.blind = True

    def _close_row(self, t: int) -> None:
        if self.blind:
            self.dropped += 1  # its beginning is among what was dropped
            if t < 0:
                return
        else:
            self._advance(t)
            name_gaps(self.segments, self.traits)
            row = self._book(self.segments)
            self.columns.append(self.row_start, t, row, self.segments, self.micro, self.compiling)
        self.at = self.row_start = t
        self.segments = []
        self.micro = 0
        self.blind = False
        self.compiling = Kind.COMPILE in self.open_overlays

    def _book(self, segments: Iterable[Segment]) -> list[int]:
        """Nanoseconds per stage; on the way, what each loader was used for."""
        totals = [0] * len(STAGES)
        for segment in segments:
            if segment.end > segment.start:
                stage = STAGE_INDEX[segment.kind]
                totals[stage] += segment.end - segment.start
                self.spans.append((segment.start, segment.end, stage))
            if segment.loader >= 0:
                self.loaders.setdefault(segment.loader, LoaderUse()).add(segment)
            elif segment.ends >= 0:
                self.loaders.setdefault(segment.ends, LoaderUse()).startup_ns += segment.end - segment.start
        return totals

    def finish(self, end: int | None, cut_off: bool) -> Folded:
        self._close_tail(end, cut_off)
        return Folded(
            columns=self.columns,
            loaders=self.loaders,
            overlays=self.overlays,
            sync_places=self.sync_places,
            spans=self.spans,
            first=max(self.first, 0),
            last=max(self.at, 0),
            boundary="optimizer" if self.by_optimizer else "backward",
            inferred=tuple(sorted(self.traits.inferred)),
            optimizer_steps=self.optimizer_steps,
            dropped_steps=self.dropped,
        )

    def _close_tail(self, end: int | None, cut_off: bool) -> None:
        """After the last step: a stall it was cut off in, or the validation and checkpoint that belong to it.

        What a script does without a name after its last step (plots, a summary) belongs to no step.
        """
        if not self.by_optimizer and self.micro and not self.stack:
            self._close_row(self.at)  # no batch came after the last step
        if self.blind or not self.columns.wall:
            return
        if end is not None and (self.stack or cut_off):
            self._advance(end)
        name_gaps(self.segments, self.traits, cut_off)
        placed = len(self.spans)
        totals = self._book([each for each in self.segments if cut_off or each.kind != GAP])
        usual = sorted(self.columns.wall)[len(self.columns.wall) // 2]
        if max(totals) > usual:
            self.columns.extend_last(totals)
        else:
            del self.spans[placed:]


def _pacemaker(steps: Counter[int]) -> int:
    """The optimizer whose step ends a step of training."""
    most = max(steps.values(), default=0)
    return max((number for number, count in steps.items() if count >= most - 1), default=-1)


# What the device did: books each moment of a step to the device's work, or to the host's where the device had none.
#
# The host queues work and goes on; where it stands says little about where time goes. While the device is
# busy, what it is busy with is on the critical path, and the host's work beside it is not. While it is idle,
# it waits for the host, and for what the host is doing. Both are known from events at the borders of each
# part.


_STAGE_OF_CODE = {
    DEVICE_FORWARD: STAGES.index(Stage.FORWARD),
    DEVICE_BACKWARD: STAGES.index(Stage.BACKWARD),
    DEVICE_OPTIMIZER: STAGES.index(Stage.OPTIMIZER),
    DEVICE_TRANSFER: STAGES.index(Stage.TRANSFER),
    DEVICE_GAP: STAGES.index(Stage.OTHER),
}
_TRANSFER, _OTHER, _DATA = (STAGES.index(stage) for stage in (Stage.TRANSFER, Stage.OTHER, Stage.DATA))
_DRAINED_NS = 100_000  # an event that completes so soon after it was queued found the device idle

Span = tuple[int, int, int]  # begin, end, stage's index


@dataclass(frozen=True)
class _Lap:
    completed: int
    code: int
    queued: int


def booked_from(seen: Folded, raw: Sequence[int]) -> int:
    """The first step that the device's events cover as a whole; 0 without events."""
    laps, _ = _laps(raw)
    return bisect_left(seen.columns.start, laps[0].completed) if len(laps) > 1 else 0


def book_device(seen: Folded, raw: Sequence[int], since: int | None = None) -> DeviceTime | None:
    """Move the time of each step to what was on its critical path, in place; None without device events.

    What is returned is of the steps that begin at `since` or later.
    """
    laps, copies = _laps(raw)
    if len(laps) < 2:
        return None
    busy = list(_busy(laps, copies, seen.spans))
    first, last = laps[0].completed, laps[-1].completed
    rows = seen.columns
    ends = [start + wall for start, wall in zip(rows.start, rows.wall, strict=True)]
    # Only whole steps: of one that the events cover in part the host's account is kept.
    covered = range(bisect_left(rows.start, first), bisect_right(ends, last))
    idle, used, wall = [0] * len(STAGES), 0, 0
    for row in covered:
        start, end = rows.start[row], ends[row]
        booked = [0] * len(STAGES)
        free = _unused(busy, start, end)
        for begin, until, stage in _within(busy, start, end):
            booked[stage] += until - begin
        counts = since is None or start >= since
        used += sum(booked) * counts
        wall += (end - start) * counts
        for begin, until in free:
            for came, went, stage in _within(seen.spans, begin, until):
                booked[stage] += went - came
                idle[stage] += (went - came) * counts
        booked[_OTHER] += (end - start) - sum(booked)
        for column, spent in zip(rows.stages, booked, strict=True):
            column[row] = spent
    if not wall:
        return None
    return DeviceTime(
        busy=used / wall,
        idle={stage: spent / wall for stage, spent in zip(STAGES, idle, strict=True) if spent},
    )


def _laps(raw: Sequence[int]) -> tuple[list[_Lap], list[tuple[int, int]]]:
    """The parts of the device's work in their order, and the copies beside them."""
    laps: list[_Lap] = []
    copies: list[tuple[int, int]] = []
    part, begun = (0, 0), 0
    for mark in raw:
        code, value = mark & 255, mark >> 8
        if code in _STAGE_OF_CODE:
            part = value, code
        elif code == DEVICE_QUEUED:
            laps.append(_Lap(part[0], part[1], value))
        elif code == DEVICE_COPY_BEGINS:
            begun = value
        elif code == DEVICE_COPY_ENDS:
            copies.append((begun, value))
    return laps, copies


def _busy(laps: Sequence[_Lap], copies: Sequence[tuple[int, int]], host: Sequence[Span]) -> Iterator[Span]:
    """What the device worked at, in order and without overlap."""
    at, queued = laps[0].completed, laps[0].queued
    for lap in laps[1:]:
        begin, before = at, queued
        at, queued = max(at, lap.completed), lap.queued
        if lap.code != DEVICE_GAP:
            yield begin, at, _STAGE_OF_CODE[lap.code]
        elif lap.completed - lap.queued > _DRAINED_NS:
            # It did something there that no tap knows, or waited for a copy on another stream.
            waited = [
                (max(begin, came), min(at, went)) for came, went in copies if came < at and went > begin
            ]
            yield from _parts(begin, at, waited, _queued_in(host, before, queued))


def _parts(begin: int, end: int, waited: Iterable[tuple[int, int]], stage: int) -> Iterator[Span]:
    for came, went in sorted(waited):
        if came > begin:
            yield begin, came, stage
        if went > max(begin, came):
            yield max(begin, came), went, _TRANSFER
        begin = max(begin, went)
    if end > begin:
        yield begin, end, stage


def _queued_in(host: Sequence[Span], start: int, end: int) -> int:
    """The stage in which the host spent most of a stretch; who waits for data queues nothing."""
    spent = [0] * len(STAGES)
    for begin, until, stage in _within(host, start, end):
        spent[stage] += until - begin
    spent[_DATA] = 0
    return max(range(len(STAGES)), key=lambda stage: (spent[stage], stage == _OTHER))


def _within(spans: Sequence[Span], start: int, end: int) -> Iterator[Span]:
    """The parts of spans, which are in order, that lie between two moments."""
    index = max(0, bisect_right(spans, start, key=lambda span: span[0]) - 1)
    while index < len(spans) and spans[index][0] < end:
        begin, until, stage = spans[index]
        if until > start:
            yield max(begin, start), min(until, end), stage
        index += 1


def _unused(busy: Sequence[Span], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the device had nothing to do."""
    for begin, until, _ in _within(busy, start, end):
        if begin > start:
            yield start, begin
        start = max(start, until)
    if end > start:
        yield start, end


def with_device_memory(gauges: Sequence[Gauge], raw: Sequence[int]) -> tuple[Gauge, ...]:
    """The gauges with what the device's allocator held at their time, as far as it was written down by then."""
    readings = _memory(raw)
    times = [t for t, _, _ in readings]
    filled = []
    for gauge in gauges:
        at = bisect_right(times, gauge.t) - 1
        if at >= 0:
            gauge = replace(gauge, cuda_allocated=readings[at][1], cuda_reserved=readings[at][2])
        filled.append(gauge)
    return tuple(filled)


def _memory(raw: Sequence[int]) -> list[tuple[int, int, int]]:
    """(time, bytes allocated, bytes reserved); a reading stands right after the mark that tells its time."""
    readings, t, allocated = [], 0, 0
    for mark in raw:
        code, value = mark & 255, mark >> 8
        if code < VALUE_FROM:
            t = value
        elif code == DEVICE_ALLOCATED:
            allocated = value
        elif code == DEVICE_RESERVED:
            readings.append((t, allocated, value))
    return readings
