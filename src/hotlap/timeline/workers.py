"""What happened inside DataLoader's workers, or inside the main process where there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hotlap.facts.timeline import WorkerFacts
from hotlap.probe import marks
from hotlap.probe.marks import Kind

_FETCH_IN, _FETCH_OUT = marks.enter(Kind.FETCH), marks.leave(Kind.FETCH)
_COLLATE_IN, _COLLATE_OUT = marks.enter(Kind.COLLATE), marks.leave(Kind.COLLATE)
_DATA_IN = marks.enter(Kind.DATA)


@dataclass
class Tally:
    """Sums over the batches that one process made for one loader."""

    batches: int = 0
    items: int = 0
    fetch_ns: int = 0  # without collate
    collate_ns: int = 0
    clocked_ns: int = 0  # of the fetches whose CPU time was asked for
    clocked_cpu_ns: int = 0  # their CPU time
    queued_ns: int = -1  # what those among them waited for a core that were asked for it, -1 for none
    asked_cpu_ns: int = 0  # their CPU time
    first: int = -1
    last: int = 0
    wait_ns: int = 0  # between one batch and the next
    after_gap: bool = False  # marks of batches before it were dropped
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def cpu_ns(self) -> int:
        """Of all fetches: those whose CPU time was not asked for used as much of their time as the others."""
        return self.clocked_cpu_ns * self.fetch_ns // self.clocked_ns if self.clocked_ns else 0

    @property
    def queued_s(self) -> float | None:
        """Only who wants a core waits for one: what some fetches waited, all did in proportion to their CPU time."""
        if self.queued_ns < 0:
            return None
        waited = self.queued_ns * max(1.0, self.cpu_ns / max(1, self.asked_cpu_ns))
        return min(waited, max(0, self.fetch_ns - self.cpu_ns)) / 1e9

    def stand_for(self, batches: int) -> None:
        """Of cheap fetches in the main process only some are watched: they stand for all that were delivered."""
        if not 0 < self.batches < batches:
            return
        more = batches / self.batches - 1
        self.wait_ns = max(0, self.wait_ns - int(more * (self.fetch_ns + self.collate_ns)))
        self.items += int(more * self.items)
        self.fetch_ns += int(more * self.fetch_ns)
        self.collate_ns += int(more * self.collate_ns)
        self.batches = batches

    def worker(self, loader: int, number: int, startup_ns: int = 0) -> WorkerFacts:
        return WorkerFacts(
            loader=loader,
            worker=number,
            batches=self.batches,
            items=self.items,
            fetch_s=self.fetch_ns / 1e9,
            cpu_s=self.cpu_ns / 1e9,
            collate_s=self.collate_ns / 1e9,
            wait_s=self.wait_ns / 1e9,
            startup_s=startup_ns / 1e9,
            queued_s=self.queued_s,
        )


def tally(raw: Sequence[int], since: int = 0) -> dict[int, Tally]:
    """Tallies by loader, of batches begun from `since` on. In a worker no loader is named: its tally is under -1."""
    tallies: dict[int, Tally] = {}
    pending: list[Tally] = []
    delivered: Counter[int] = Counter()
    current, collate_in, gap, asked = Tally(), -1, False, -1
    for mark in raw:
        code, value = mark & 255, mark >> 8
        if code == _DATA_IN:
            asked = value
        elif code == _FETCH_IN:
            current = Tally(first=value)
        elif code == _COLLATE_IN:
            collate_in = value
        elif code == _COLLATE_OUT and collate_in >= 0:
            current.collate_ns += value - collate_in
        elif code == _FETCH_OUT and current.first >= 0:
            current.last = value
            current.fetch_ns = value - current.first - current.collate_ns
        elif code == marks.ITEMS and current.last:  # a fetch that brought nothing says no number
            current.batches, current.items = 1, value
            if current.first >= since:
                current.after_gap, gap = gap, False
                pending.append(current)
        elif code == marks.FETCH_CPU:
            current.clocked_ns, current.clocked_cpu_ns = max(1, current.fetch_ns), value
        elif code == marks.FETCH_QUEUED:
            current.queued_ns, current.asked_cpu_ns = value, current.clocked_cpu_ns
        elif code == marks.LOADER_ID:
            _book(tallies, value, pending)
            pending = []
            delivered[value] += asked >= since
            asked = -1
        elif code == marks.EXHAUSTED:
            asked = -1  # the name that follows is that of a loader that begins
        elif code == marks.DROPPED:
            current, collate_in, gap, asked = Tally(), -1, True, -1
    _book(tallies, -1, pending)
    for loader, count in delivered.items():
        if loader in tallies:
            tallies[loader].stand_for(count)
    return tallies


def combine(workers: Sequence[WorkerFacts]) -> tuple[WorkerFacts, ...]:
    """A worker that was started again each epoch is one worker, with its startups counted."""
    merged: dict[tuple[int, int], WorkerFacts] = {}
    for each in workers:
        known = merged.get((each.loader, each.worker))
        merged[each.loader, each.worker] = _sum(known, each) if known else each
    return tuple(merged[key] for key in sorted(merged))


def project_startups(workers: Iterable[WorkerFacts], started: int) -> list[WorkerFacts]:
    """Of workers that were started often only some starts are recorded; those stand for the others."""
    return [
        replace(each, startups=started, startup_s=each.startup_s * started / each.startups)
        if each.worker >= 0 and each.startups < started
        else each
        for each in workers
    ]


def _sum(one: WorkerFacts, other: WorkerFacts) -> WorkerFacts:
    return WorkerFacts(
        loader=one.loader,
        worker=one.worker,
        batches=one.batches + other.batches,
        items=one.items + other.items,
        fetch_s=one.fetch_s + other.fetch_s,
        cpu_s=one.cpu_s + other.cpu_s,
        collate_s=one.collate_s + other.collate_s,
        wait_s=one.wait_s + other.wait_s,
        startups=one.startups + other.startups,
        startup_s=one.startup_s + other.startup_s,
        queued_s=_known(one.queued_s, other.queued_s),
    )


def _known(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)


def _book(tallies: dict[int, Tally], loader: int, batches: Sequence[Tally]) -> None:
    if not batches:
        return
    total = tallies.setdefault(loader, Tally(first=batches[0].first))
    for batch in batches:
        total.batches += batch.batches
        total.items += batch.items
        total.fetch_ns += batch.fetch_ns
        total.collate_ns += batch.collate_ns
        total.clocked_ns += batch.clocked_ns
        total.clocked_cpu_ns += batch.clocked_cpu_ns
        if batch.queued_ns >= 0:
            total.queued_ns = max(0, total.queued_ns) + batch.queued_ns
            total.asked_cpu_ns += batch.asked_cpu_ns
        if total.last and not batch.after_gap:
            total.wait_ns += max(0, batch.first - total.last)
        total.last = batch.last
        total.spans.append((batch.first, batch.last, 0))
