"""From stack samples to hot lines: each sample gets the stage that its moment fell into."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hotlap.diagnose.segments import STAGES
from hotlap.facts.timeline import HotLine, Place, Stage
from hotlap.probe.sampler import LINE_BITS

_MOST_PER_STAGE = 12
Span = tuple[int, int, int]


def hot_lines(
    samples: Sequence[int], table: Sequence[Sequence[Any]], spans: Sequence[Span], since: int, role: str
) -> list[HotLine]:
    """The lines that held most samples of each stage, from the moment `since` on."""
    counts: dict[Stage, Counter[int]] = {}
    for stage, line in _placed(samples, spans, since):
        if line < len(table):
            counts.setdefault(stage, Counter())[line] += 1
    return [line for stage, lines in counts.items() for line in _top(stage, lines, table, role)]


def merge(groups: Iterable[Sequence[HotLine]]) -> list[HotLine]:
    """Lines of several processes in the same role, as one list."""
    totals: Counter[tuple[Stage, Place, str, str]] = Counter()
    sums: Counter[tuple[Stage, str]] = Counter()
    for line in (line for group in groups for line in group):
        totals[line.stage, line.place, line.callee, line.role] += line.samples
        sums[line.stage, line.role] += round(line.samples / line.share)
    return [
        HotLine(place, callee, stage, count / sums[stage, role], count, role)
        for (stage, place, callee, role), count in totals.most_common()
    ]


def _placed(samples: Sequence[int], spans: Sequence[Span], since: int) -> Iterable[tuple[Stage, int]]:
    starts = [span[0] for span in spans]
    for sample in samples:
        moment, line = (sample >> LINE_BITS) * 1000, sample & ((1 << LINE_BITS) - 1)
        index = bisect_right(starts, moment) - 1
        if moment >= since and index >= 0 and moment < spans[index][1]:
            yield STAGES[spans[index][2]], line


def _top(stage: Stage, lines: Counter[int], table: Sequence[Sequence[Any]], role: str) -> Iterable[HotLine]:
    total = lines.total()
    for line, count in lines.most_common(_MOST_PER_STAGE):
        file, number, function, code, callee = table[line]
        yield HotLine(Place(file, number, function, code), callee, stage, count / total, count, role)
