"""What was seen beside the steps: memory, CPU, workers, loaders, hot lines, synchronisations, cadences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from hotlap.facts.ceiling import rehearsed
from hotlap.facts.codec import to_plain
from hotlap.facts.host import Host
from hotlap.facts.summary import Summary
from hotlap.facts.timeline import Cadence, Gauge, HotLine, Loader, Place, Stage, Timeline, Worker
from hotlap.report.source import Sources

# What a reader goes through at most; the timeline keeps the rest.
MOST_LINES = 30
MOST_SYNCS = 20
# One look at memory is noisy (allocators give back late), so both ends of the run are medians of a few.
ENDS_OF_RUN = 5
# Of the cores, taken by others: a job that uses all cores loses about as much.
DISTURBED = 0.2


def steady_gauges(timeline: Timeline) -> tuple[Gauge, ...]:
    """The gauges of the steady state; all of them where it was too short to hold one."""
    if not timeline.steady_steps:
        return timeline.gauges
    begin = timeline.steps.start[timeline.steady_from]
    return tuple(gauge for gauge in timeline.gauges if gauge.t >= begin) or timeline.gauges


def memory(timeline: Timeline, steady: Sequence[Gauge], host: Host) -> dict[str, Any] | None:
    """Bytes of the process (RSS) and of the GPU; `growth` is end minus start of the steady state."""
    if not steady:
        return None
    resident = [gauge.rss for gauge in steady]
    return {
        "rss_start": _start(resident),
        "rss_end": _end(resident),
        "rss_peak": max(gauge.rss for gauge in timeline.gauges),
        "rss_growth": _growth(resident),
        "tree_peak": max(
            (each.tree_rss for each in timeline.gauges if each.tree_rss is not None), default=None
        ),
        "ram": host.ram_bytes,
        "cuda": _cuda(timeline.gauges, steady, host),
    }


def _cuda(gauges: Sequence[Gauge], steady: Sequence[Gauge], host: Host) -> dict[str, Any] | None:
    allocated = [gauge.cuda_allocated for gauge in steady if gauge.cuda_allocated is not None]
    if not allocated:
        return None
    reserved = [gauge.cuda_reserved for gauge in gauges if gauge.cuda_reserved is not None]
    return {
        "allocated_start": _start(allocated),
        "allocated_end": _end(allocated),
        "allocated_peak": max(gauge.cuda_allocated for gauge in gauges if gauge.cuda_allocated is not None),
        "allocated_growth": _growth(allocated),
        "reserved_peak": max(reserved, default=None),
        "total": host.gpus[0].memory_bytes if host.gpus else None,
    }


def cpu(steady: Sequence[Gauge], host: Host) -> dict[str, Any] | None:
    """Mean use in the steady state, where 1.0 is one core: the training process, its workers, all others."""
    if not steady:
        return None
    busy = [gauge.gpu_busy for gauge in steady if gauge.gpu_busy is not None]
    stolen = [gauge.stolen for gauge in steady if gauge.stolen is not None]
    per_core = [gauge.cores for gauge in steady if gauge.cores]
    return {
        "main": _mean(gauge.cpu for gauge in steady),
        "workers": _mean(gauge.workers_cpu for gauge in steady),
        "foreign": _mean(gauge.foreign_cpu for gauge in steady),
        "iowait": _mean(gauge.iowait for gauge in steady),
        "stolen": _mean(stolen) if stolen else None,
        "per_core": [_mean(core) for core in zip(*per_core, strict=False)] or None,
        "cores": host.cores,
        "disturbed": _mean(gauge.foreign_cpu for gauge in steady) > DISTURBED * host.cores,
        "gpu_busy": _mean(busy) if busy else None,
    }


def rehearsals(timeline: Timeline, summary: Summary) -> list[dict[str, Any]]:
    """Steps under other numbers of workers, beside the steady ones; nothing where there is no such step."""
    now = summary.step_ms
    if now is None:
        return []
    return [
        {"workers": each.workers, "step_ms": each.step_s * 1e3, "gain": now / (each.step_s * 1e3) - 1.0}
        for each in rehearsed(timeline, summary).values()
    ]


def worker(each: Worker) -> dict[str, Any]:
    """A worker's sums, and what follows from them per item and per batch."""
    plain: dict[str, Any] = to_plain(each)
    return {
        **plain,
        "fetch_ms_per_item": each.fetch_s * 1e3 / each.items if each.items else None,
        "cpu_share": min(1.0, each.cpu_s / each.fetch_s) if each.fetch_s else None,
        "collate_ms_per_batch": each.collate_s * 1e3 / each.batches if each.batches else None,
        "wait_ms_per_batch": each.wait_s * 1e3 / each.batches if each.batches else None,
        "busy": each.busy if each.batches else None,
    }


def loader(each: Loader, sources: Sources) -> dict[str, Any]:
    """A DataLoader as the script built it."""
    plain: dict[str, Any] = to_plain(each)
    plain["place"] = _place(each.place, sources)
    plain["dataset"]["place"] = _place(each.dataset.place, sources)
    return plain


def lines(timeline: Timeline, summary: Summary, sources: Sources) -> list[dict[str, Any]]:
    """The lines that held time, those behind most of a step first; `of` says what `share` is a share of."""
    in_main = all(each.worker < 0 for each in timeline.workers)
    held = {line: _held(line, summary, in_main) for line in timeline.lines}
    ranked = sorted(timeline.lines, key=lambda line: (-held[line], -line.samples))
    calls = Counter((line.place, line.callee) for line in timeline.lines)
    return [
        {
            **to_plain(line),
            "place": sources.place(line.place),
            "held": held[line],  # as a share of the step
            "of": "item" if _prepares_items(line, in_main) else line.stage.value,
            # One call behind several stages is a framework's loop: what it led to says more than its name.
            "whole_loop": calls[line.place, line.callee] > 1,
            "source": sources.excerpt(line.place),
        }
        for line in ranked[:MOST_LINES]
    ]


def _held(line: HotLine, summary: Summary, in_main: bool) -> float:
    """The part of a step behind a line. A loop that waits for workers holds none: their lines do."""
    if line.role == "main" and line.stage is Stage.DATA and not in_main:
        return 0.0
    return line.share * summary.share(line.stage)


def _prepares_items(line: HotLine, in_main: bool) -> bool:
    """Without worker processes items are prepared on the training thread, inside its data stage."""
    return line.role == "worker" or (in_main and line.stage is Stage.DATA)


def syncs(timeline: Timeline, sources: Sources) -> list[dict[str, Any]]:
    """The lines where the host waited for the device, longest first."""
    ranked = sorted(timeline.syncs, key=lambda sync: -sync.seconds)
    return [
        {
            **to_plain(sync),
            "place": sources.place(sync.place),
            "ms_each": sync.seconds * 1e3 / sync.count if sync.count else None,
        }
        for sync in ranked[:MOST_SYNCS]
    ]


def cadence(each: Cadence, sources: Sources) -> dict[str, Any]:
    """An occasional stage, with what one occurrence took."""
    return {
        **to_plain(each),
        "place": _place(each.place, sources),
        "ms_each": each.seconds * 1e3 / each.count if each.count else None,
    }


def model(timeline: Timeline, sources: Sources) -> dict[str, Any] | None:
    """The root module, or None where the script called none."""
    if timeline.model is None:
        return None
    return {**to_plain(timeline.model), "place": _place(timeline.model.place, sources)}


def _place(place: Place | None, sources: Sources) -> dict[str, Any] | None:
    return None if place is None else sources.place(place)


def _start(values: Sequence[int]) -> int:
    return _middle(values[: _few(values)])


def _end(values: Sequence[int]) -> int:
    return _middle(values[-_few(values) :])


def _growth(values: Sequence[int]) -> int | None:
    return _end(values) - _start(values) if len(values) > 1 else None


def _few(values: Sequence[int]) -> int:
    return min(ENDS_OF_RUN, max(1, len(values) // 2))


def _middle(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
