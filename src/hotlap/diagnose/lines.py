"""From stack samples to hot lines: each sample gets the stage that its moment fell into."""

from __future__ import annotations

import linecache
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hotlap.diagnose.segments import STAGES
from hotlap.facts.timeline import HotLine, Place, Stage
from hotlap.probe.sampler import LINE_BITS

_MOST_PER_STAGE = 12
_MOST_TEXT = 160
Span = tuple[int, int, int]


def hot_lines(
    samples: Sequence[int], table: Sequence[Sequence[Any]], spans: Sequence[Span], since: int, role: str
) -> list[HotLine]:
    """The lines that held most samples of each stage, from the moment `since` on."""
    counts: dict[Stage, Counter[int]] = {}
    for stage, line in _placed(samples, spans, since):
        if line < len(table):
            counts.setdefault(stage, Counter())[line] += 1
    return [line for stage, rows in counts.items() for line in _top(stage, rows, table, role)]


def merge(groups: Iterable[Sequence[HotLine]]) -> list[HotLine]:
    """Lines of several processes in the same role, as one list."""
    totals: Counter[tuple[Stage, Place, str, str, str]] = Counter()
    sums: Counter[tuple[Stage, str]] = Counter()
    for group in groups:
        for line in group:
            totals[line.stage, line.place, line.callee, line.role, line.inner] += line.samples
        for stage, role in {(line.stage, line.role) for line in group}:
            first = next(line for line in group if (line.stage, line.role) == (stage, role))
            sums[stage, role] += round(first.samples / first.share)
    return [
        HotLine(place, callee, stage, count / sums[stage, role], count, role, inner)
        for (stage, place, callee, role, inner), count in totals.most_common()
    ]


def _placed(samples: Sequence[int], spans: Sequence[Span], since: int) -> Iterable[tuple[Stage, int]]:
    starts = [span[0] for span in spans]
    for sample in samples:
        moment, line = (sample >> LINE_BITS) * 1000, sample & ((1 << LINE_BITS) - 1)
        index = bisect_right(starts, moment) - 1
        if moment >= since and index >= 0 and moment < spans[index][1]:
            yield STAGES[spans[index][2]], line


def _top(stage: Stage, rows: Counter[int], table: Sequence[Sequence[Any]], role: str) -> Iterable[HotLine]:
    """One entry per line and callee; where it led is the innermost function that most of its samples ended in."""
    total = rows.total()
    lines: Counter[tuple[Any, ...]] = Counter()
    inners: dict[tuple[Any, ...], Counter[str]] = {}
    for row, count in rows.items():
        line, inner = tuple(table[row][:-1]), table[row][-1]
        lines[line] += count
        inners.setdefault(line, Counter())[inner] += count
    for line, count in lines.most_common(_MOST_PER_STAGE):
        file, number, function, callee = line
        text = linecache.getline(file, number).strip()[:_MOST_TEXT]
        inner = inners[line].most_common(1)[0][0]
        yield HotLine(Place(file, number, function, text), callee, stage, count / total, count, role, inner)
