"""The plain data of one profile: what `--json` prints and what every renderer draws.

A renderer computes nothing, so all that a report shows is here, in no language. None means: not measured.
"""

from __future__ import annotations

import linecache
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

from hotlap.cost.roofline import compute_of
from hotlap.errors import FactError
from hotlap.facts.codec import SCHEMA, to_plain
from hotlap.facts.diagnosis import HEALTHY, Diagnosis, Finding
from hotlap.facts.experiment import Experiments
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.rewrite import Recognition
from hotlap.facts.summary import Summary, by_pace, free_input, own_work_ms, rehearsed, summarise
from hotlap.facts.timeline import (
    Cadence,
    Gauge,
    HotLine,
    LoaderFacts,
    SourceLine,
    Stage,
    Timeline,
    Warmup,
    WorkerFacts,
)
from hotlap.report import series
from hotlap.report.document import finite
from hotlap.report.experiments import experiments_view, fix_view, untested_reason


def profile_view(
    job: Job,
    host: Host,
    timelines: Sequence[Timeline],
    diagnosis: Diagnosis,
    run: str,
    experiments: Experiments | None = None,
    *,
    rewrites: Recognition | None = None,
) -> dict[str, Any]:
    """The view of a run: its slowest rank in full, the others beside it.

    `run` is the run folder; `experiments` is None where they were off, and of runs stored before there were any.
    """
    if not timelines:
        raise FactError("the run has no timeline: no training process was seen.", "record the run again")
    timelines = by_pace(timelines)
    pace = timelines[0]
    summaries = [summarise(timeline) for timeline in timelines]
    summary = summaries[0]
    sources = Sources(job.cwd)
    view = {
        "schema": SCHEMA,
        "verdict": _verdict(diagnosis, summary),
        "run": run,
        "run_shown": from_here(run),
        "job": {**to_plain(job), "shown": job.shown},
        "ending": pace.ending.value,
        "step": _step(pace, summary),
        "stages": _stages(summary),
        "inferred": to_plain(pace.inferred),
        "throughput": _throughput(summary),
        "coverage": summary.coverage,
        "overhead": pace.probe.share if summary.n else None,
        "probe": to_plain(pace.probe),
        "findings": [_finding(each, sources) for each in diagnosis.findings],
        "untested": [
            {**_finding(each, sources), "reason": untested_reason(each, experiments)}
            for each in diagnosis.untested
        ],
        **experiments_view(experiments, to_plain(job), summary.step_ms),
        "rewrites": to_plain(rewrites.found) if rewrites is not None else [],
        "unmatched": to_plain(rewrites.others) if rewrites is not None else [],
        "warmup": _warmup(pace.warmup),
        **_seen(pace, summary, host, sources),
        "ranks": _ranks(timelines, summaries),
        "slowest_rank": pace.rank if len(timelines) > 1 else None,
        "host": to_plain(host),
        "series": series.of_steps(pace),
        "gauges": series.of_gauges(pace.gauges),
        "ops_trace": _ops_trace(run),
        "trace": [series.trace(each, len(timelines)) for each in timelines],
    }
    return cast(dict[str, Any], finite(view))


def from_here(run: str) -> str:
    """The run folder as one types it in this folder."""
    path, here = Path(run), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else run


def _verdict(diagnosis: Diagnosis, summary: Summary) -> str | None:
    """None where no step was steady: a run that was not seen is not a healthy one."""
    verdict = diagnosis.verdict
    return None if verdict == HEALTHY and not summary.n else verdict


def _step(timeline: Timeline, summary: Summary) -> dict[str, Any]:
    micro = timeline.steps.micro[timeline.steady_from :]
    return {
        "ms_median": summary.step_ms_median,
        "ms_p95": summary.step_ms_p95,
        "n": summary.n,
        "seen": len(timeline.steps),
        "ms_mean": summary.step_ms,
        "seconds": summary.seconds if summary.n else None,
        "backward_passes": sum(micro) / len(micro) if micro else None,
        "ends_with": timeline.boundary,
    }


def _stages(summary: Summary) -> dict[str, Any]:
    return {
        stage.value: {"ms": each.ms, "share": each.share, "p50": each.p50_ms, "p95": each.p95_ms}
        for stage, each in summary.stages.items()
    }


def _throughput(summary: Summary) -> dict[str, Any]:
    return {
        "steps_per_s": summary.steps_per_s,
        "samples_per_s": summary.samples_per_s,
        "tokens_per_s": summary.tokens_per_s,
        "padding_share": summary.padding_share,
    }


def _ops_trace(run: str) -> str | None:
    """The trace of torch.profiler in the run's folder, where there is one."""
    path = Path(run) / "trace.json"
    return str(path) if path.is_file() else None


def _finding(finding: Finding, sources: Sources) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(finding)
    fixes = [fix_view(each) for each in plain["fixes"]]
    return {**plain, "fixes": fixes, "where": _where(finding.where, sources)}


def _where(place: SourceLine | None, sources: Sources) -> dict[str, Any] | None:
    return None if place is None else {**sources.place(place), "source": sources.excerpt(place)}


def _warmup(warmup: Warmup) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(warmup)
    return plain


def _seen(timeline: Timeline, summary: Summary, host: Host, sources: Sources) -> dict[str, Any]:
    steady = steady_gauges(timeline)
    return {
        "epochs": timeline.epochs,
        "memory": memory(timeline, steady, host),
        "cpu": cpu(steady, host),
        "device": device(timeline),
        "workers": [worker(each) for each in timeline.workers],
        "loaders": [loader(each, sources) for each in timeline.loaders],
        "lines": lines(timeline, summary, sources),
        "syncs": syncs(timeline, sources),
        "cadences": [cadence(each, sources) for each in timeline.cadences],
        "pauses": to_plain(timeline.pauses),
        "comm_s": timeline.comm_s,
        "model": model(timeline, sources),
        "optimizers": to_plain(timeline.optimizers),
        "runtime": to_plain(timeline.runtime),
        "ops": to_plain(timeline.ops),
        "compute": compute_of(timeline, summary),
        "free_input": to_plain(free_input(timeline, summary)),
        "rehearsals": rehearsals(timeline, summary),
    }


def _ranks(timelines: Sequence[Timeline], summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    works = own_work_ms(timelines, summaries)
    ranks = [_rank(*each) for each in zip(timelines, summaries, works, strict=True)]
    return sorted(ranks, key=lambda rank: int(rank["rank"]))


def _rank(timeline: Timeline, summary: Summary, own_ms: float | None) -> dict[str, Any]:
    comm_s = timeline.comm_s
    return {
        "rank": timeline.rank,
        "pid": timeline.pid,
        "ending": timeline.ending.value,
        "step": _step(timeline, summary),
        "stages": _stages(summary),
        "own_ms": own_ms,
        "comm_ms": comm_s * 1e3 / summary.n if comm_s is not None and summary.n else None,
    }


# What was seen beside the steps: memory, CPU, workers, loaders, hot lines, synchronisations, cadences.


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
        **_gpu(steady),
    }


def _gpu(steady: Sequence[Gauge]) -> dict[str, Any]:
    """What the driver says of the job's GPUs: by how much of their clock, and what was in their way."""
    clocks = [gauge.gpu_clock for gauge in steady if gauge.gpu_clock is not None]
    held = [gauge.gpu_throttle for gauge in steady if gauge.gpu_throttle is not None]
    reasons = {reason for each in held for reason in each.split(", ") if reason}
    others = [gauge.gpu_others for gauge in steady if gauge.gpu_others is not None]
    return {
        "gpu_clock": _mean(clocks) if clocks else None,
        "gpu_throttle": sorted(reasons) if held else None,
        "gpu_throttled": sum(map(bool, held)) / len(held) if held else None,
        "gpu_others": max(others, default=None),
        "gpu_lost": any(gauge.gpu_lost for gauge in steady),
    }


def device(timeline: Timeline) -> dict[str, Any] | None:
    """What the device did, by events at the borders of a step's parts; None where none were timed."""
    if timeline.device is None:
        return None
    known = timeline.runtime.accelerator
    return {
        "kind": known.kind if known is not None else None,
        "name": known.name if known is not None else None,
        "busy": timeline.device.busy,
        "idle": {str(stage): share for stage, share in timeline.device.idle.items()},
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


def worker(each: WorkerFacts) -> dict[str, Any]:
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


def loader(each: LoaderFacts, sources: Sources) -> dict[str, Any]:
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


def _place(place: SourceLine | None, sources: Sources) -> dict[str, Any] | None:
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


# Places as people read them, and the lines of source around them.


# Three lines on each side show the loop or the call that a line stands in, and still fit on a card.
LINES_AROUND = 3
# Generated modules can be huge; a report does not read them whole.
LARGEST_FILE = 2_000_000
WIDEST_LINE = 200

_LIBRARY = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib/python3\.\d+/")


class Sources:
    """The files of one job, each read at most once."""

    def __init__(self, cwd: str) -> None:
        self._cwd = Path(cwd)
        self._files: dict[str, list[str] | None] = {}

    def place(self, place: SourceLine) -> dict[str, Any]:
        """A place with `shown`: its file as short as it is clear, and its line."""
        return {**to_plain(place), "shown": f"{self._short(place.file)}:{place.line}"}

    def excerpt(self, place: SourceLine) -> dict[str, Any] | None:
        """The lines around a place, or None where the file is gone or was changed since."""
        lines = self._lines(place.file)
        if lines is None or not 1 <= place.line <= len(lines):
            return None
        if place.code and place.code.strip() != lines[place.line - 1].strip():
            return None
        first = max(1, place.line - LINES_AROUND)
        shown = lines[first - 1 : place.line + LINES_AROUND]
        return {"first": first, "lines": [line.rstrip()[:WIDEST_LINE] for line in shown]}

    def _short(self, file: str) -> str:
        path = PurePath(file)
        if path.is_relative_to(self._cwd) and not _LIBRARY.match(file):
            return str(path.relative_to(self._cwd))
        inside = _LIBRARY.sub("", file)
        return inside if inside != file else "/".join(path.parts[-2:]) if len(path.parts) > 2 else file

    def _lines(self, file: str) -> list[str] | None:
        if file not in self._files:
            # Cells of a notebook are no files; where this is their process, it knows their text.
            self._files[file] = _read(self._cwd / file) or linecache.getlines(file) or None
        return self._files[file]


def _read(path: Path) -> list[str] | None:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        with tokenize.open(path) as source:
            return source.read().split("\n")
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
