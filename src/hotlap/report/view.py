"""The plain data of one profile: what `--json` prints and what every renderer draws.

A renderer computes nothing, so all that a report shows is here, in no language. None means: not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hotlap.errors import FactError
from hotlap.facts.ceiling import free_input
from hotlap.facts.codec import SCHEMA, to_plain
from hotlap.facts.diagnosis import HEALTHY, Diagnosis, Finding
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.pace import by_pace, own_work_ms
from hotlap.facts.summary import Summary, summarise
from hotlap.facts.timeline import Place, Timeline, Warmup
from hotlap.report import seen, series
from hotlap.report.plain import finite
from hotlap.report.source import Sources


def profile_view(
    job: Job, host: Host, timelines: Sequence[Timeline], diagnosis: Diagnosis, run: str
) -> dict[str, Any]:
    """The view of a run: its slowest rank in full, the others beside it. `run` is the run folder."""
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
    return {**to_plain(finding), "where": _where(finding.where, sources)}


def _where(place: Place | None, sources: Sources) -> dict[str, Any] | None:
    return None if place is None else {**sources.place(place), "source": sources.excerpt(place)}


def _warmup(warmup: Warmup) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(warmup)
    return plain


def _seen(timeline: Timeline, summary: Summary, host: Host, sources: Sources) -> dict[str, Any]:
    steady = seen.steady_gauges(timeline)
    return {
        "epochs": timeline.epochs,
        "memory": seen.memory(timeline, steady, host),
        "cpu": seen.cpu(steady, host),
        "workers": [seen.worker(each) for each in timeline.workers],
        "loaders": [seen.loader(each, sources) for each in timeline.loaders],
        "lines": seen.lines(timeline, summary, sources),
        "syncs": seen.syncs(timeline, sources),
        "cadences": [seen.cadence(each, sources) for each in timeline.cadences],
        "pauses": to_plain(timeline.pauses),
        "comm_s": timeline.comm_s,
        "model": seen.model(timeline, sources),
        "optimizers": to_plain(timeline.optimizers),
        "runtime": to_plain(timeline.runtime),
        "ops": to_plain(timeline.ops),
        "free_input": to_plain(free_input(timeline, summary)),
        "rehearsals": seen.rehearsals(timeline, summary),
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
