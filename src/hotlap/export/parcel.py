"""What is exported of a view: each figure that was measured, under one name in all tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from hotlap.ports.exporter import Metric, Parcel, Series

View = Mapping[str, Any]


def parcel_of(view: View, folder: Path, *, summary: str = "", report: str = "") -> Parcel:
    """Of a profile, a search, a comparison, or a run under a plan."""
    kind = view.get("kind", "profile")
    metrics = tuple(_METRICS[kind](view))
    series = tuple(_series(view["series"])) if view.get("series") else ()
    return Parcel(folder.name, str(folder), metrics, series, _tags(view, kind), summary, report)


def _tags(view: View, kind: str) -> dict[str, str]:
    tags = {"kind": kind, "verdict": view.get("verdict"), "ending": view.get("ending")}
    tags["command"] = view["job"]["shown"] if "job" in view else view.get("command")
    tags["findings"] = ", ".join(each["cause"] for each in view.get("findings", ()))
    settings = view.get("settings") or (view.get("plan") or {}).get("settings") or {}
    tags["settings"] = ", ".join(f"{knob}={value}" for knob, value in settings.items())
    return {f"hotlap.{key}": str(value) for key, value in tags.items() if value}


def _of_profile(view: View) -> Iterator[Metric]:
    yield from _metrics("step", view["step"], ("ms_median", "ms_p95", "ms_mean", "n"))
    yield from _metrics("throughput", view["throughput"])
    yield from _metrics("profile", view, ("coverage", "overhead"))
    for stage, figures in view["stages"].items():
        yield from _metrics("stage", figures, ("ms", "share"), stage=stage)
    if view.get("compute") is not None:  # stored views may be older
        yield from _metrics("compute", view["compute"]["step"], ("flops", "flops_per_s", "mfu"))
    for finding in view["findings"]:
        yield from _metrics("finding", finding, ("share",), cause=finding["cause"])
    for each in view["experiments"] or ():
        yield from _metrics("experiment", each, ("gain",), knob=each["knob"], setting=str(each["setting"]))
    if len(view["ranks"]) > 1:
        for rank in view["ranks"]:
            yield from _metrics("rank", rank["step"], ("ms_median", "ms_p95"), rank=str(rank["rank"]))


def _of_search(view: View) -> Iterator[Metric]:
    yield from _metrics("search.throughput", view["throughput"], ("before", "after"))
    yield from _metrics("search.gain", view["gain"] or {})
    for each in view["ablation"]["settings"]:
        yield from _metrics(
            "setting.gain", each["gain"] or {}, knob=each["knob"], setting=str(each["setting"])
        )


def _of_comparison(view: View) -> Iterator[Metric]:
    for each in view["variants"]:
        figures = ("throughput", "step_ms", "data_ms", "utilisation", "memory_bytes")
        yield from _metrics("variant", each, figures, variant=each["name"])
        yield from _metrics("variant.ratio", each["ratio"] or {}, variant=each["name"])


def _of_run(view: View) -> Iterator[Metric]:
    yield from _metrics("run", view, ("steps", "steps_per_s", "starts", "exit_code"))
    counts = {"step_downs": len(view["step_downs"]), "breaches": len(view["breaches"])}
    yield from _metrics("run", counts)


_METRICS: Mapping[str, Callable[[View], Iterable[Metric]]] = {
    "profile": _of_profile,
    "tuning": _of_search,
    "comparison": _of_comparison,
    "run": _of_run,
}


def _metrics(of: str, figures: View, names: Iterable[str] = (), **labels: str) -> Iterator[Metric]:
    """Those that are numbers: None is what was not measured."""
    for name in names or figures:
        value = figures.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Metric(f"{of}.{name}", value, labels)


def _series(columns: View) -> Iterator[Series]:
    """Means of buckets of steps, as the report draws them."""
    steps = tuple(columns["step"])
    assert all(before < after for before, after in pairwise(steps))
    yield Series("hotlap/by_step/step/ms", steps, tuple(columns["wall"]["mean_ms"]))
    for stage, column in columns["stages"].items():
        yield Series(f"hotlap/by_step/stage/ms/{stage}", steps, tuple(column["mean_ms"]))
