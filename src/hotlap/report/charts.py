"""The numbers behind the HTML report's plots and the words of their axes; templates/charts.js draws them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.facts.timeline import Stage
from hotlap.report import experiments
from hotlap.report.locale import Phrases
from hotlap.report.sections.experiments import gain
from hotlap.report.sections.machine import worker_name
from hotlap.report.sections.time import stage_name

MIB = 2**20
# More bars than this are no picture; the table has every worker and every rank.
MOST_BARS = 64
AXES = (
    "axis_step", "axis_ms", "axis_longest", "axis_seconds", "axis_share", "axis_cores", "axis_memory",
    "axis_gain",
)  # fmt: skip
WORDS = (*AXES, "longest_step", "warmup", "not_measured")


def data(view: Mapping[str, Any], say: Phrases) -> dict[str, Any]:
    """All plots; one of which nothing was measured is None."""
    return {
        "words": {name: say(name if name == "not_measured" else f"html.{name}") for name in WORDS},
        "timeline": timeline(view, say),
        "experiments": tried(view, say),
        "workers": workers(view, say),
        "memory": memory(view, say),
        "cpu": cpu(view, say),
        "ranks": ranks(view, say),
    }


def timeline(view: Mapping[str, Any], say: Phrases) -> dict[str, Any] | None:
    """Mean of each stage per bucket, and the longest step of each bucket with the stage that held it most."""
    series = view["series"]
    if not series["step"]:
        return None
    present = [stage for stage in Stage if stage in series["stages"]]
    longest = list(zip(*(series["stages"][stage]["max_ms"] for stage in present), strict=True))
    return {
        "x": series["step"],
        "steady_from": series["steady_from"],
        "stages": [
            {"id": stage.value, "name": stage_name(stage, say), "y": series["stages"][stage]["mean_ms"]}
            for stage in present
        ],
        "longest": series["wall"]["max_ms"],
        "held_by": [stage_name(present[each.index(max(each))], say) for each in longest],
    }


def tried(view: Mapping[str, Any], say: Phrases) -> dict[str, Any] | None:
    """The measured gain of each change with its interval, in percent; free input is a bound of its own colour."""
    changes, bound = experiments.tried(view), experiments.free_input(view)
    if not changes:
        return None
    shown = [*changes[:MOST_BARS], *([bound] if bound else [])]
    names = [experiments.change(each) for each in changes[:MOST_BARS]]
    names += [say("experiments.free_input_bound")] if bound else []
    intervals = [each["interval"] or {"low": each["gain"], "high": each["gain"]} for each in shown]
    return {
        "names": names,
        "states": [each["state"] if experiments.is_change(each) else "bound" for each in shown],
        "gain": [_percent(each["gain"]) for each in shown],
        "low": [_percent(each["low"]) for each in intervals],
        "high": [_percent(each["high"]) for each in intervals],
        "text": [gain(each, say) for each in shown],
    }


def workers(view: Mapping[str, Any], say: Phrases) -> dict[str, Any] | None:
    """Each worker process's life: fetching, collating, waiting, as shares that add up to one."""
    seen = [each for each in view["workers"] if each["worker"] >= 0 and each["busy"] is not None][:MOST_BARS]
    if not seen:
        return None
    lives = [each["fetch_s"] + each["collate_s"] + each["wait_s"] for each in seen]
    parts = (("fetch", "fetch_s"), ("collate", "collate_s"), ("wait", "wait_s"))
    return {
        "names": [f"{say('column.worker')} {worker_name(each, len(view['loaders']), say)}" for each in seen],
        "parts": [
            {"id": name, "name": say(f"workers.{name}"), "x": _shares([each[key] for each in seen], lives)}
            for name, key in parts
        ],
    }


def memory(view: Mapping[str, Any], say: Phrases) -> dict[str, Any] | None:
    """MiB over time: the process, and the GPU where there is one."""
    gauges = view["gauges"]
    if gauges is None:
        return None
    lines = [
        {"id": name, "name": say(f"html.{name}"), "y": [_mib(each) for each in gauges[name]]}
        for name in ("rss", "cuda_allocated", "cuda_reserved")
        if gauges[name] is not None
    ]
    return {"x": gauges["t_s"], "lines": lines}


def cpu(view: Mapping[str, Any], say: Phrases) -> dict[str, Any] | None:
    """Cores in use over time, one on top of the other."""
    gauges = view["gauges"]
    if gauges is None:
        return None
    parts = (("main", "cpu"), ("workers", "workers_cpu"), ("foreign", "foreign_cpu"), ("iowait", "iowait"))
    lines = [
        {"id": name, "name": say(f"html.cpu_{name}"), "y": gauges[key]}
        for name, key in parts
        if gauges[key] is not None and any(gauges[key])
    ]
    return {"x": gauges["t_s"], "cores": view["host"]["cores"], "lines": lines}


def ranks(view: Mapping[str, Any], say: Phrases) -> dict[str, Any] | None:
    """Mean step of every rank, by stage."""
    seen = [each for each in view["ranks"] if each["stages"]][:MOST_BARS]
    if len(seen) < 2:
        return None
    present = [stage for stage in Stage if any(each["stages"].get(stage, {"ms": 0})["ms"] for each in seen)]
    return {
        "names": [f"rank {each['rank']}" for each in seen],
        "parts": [
            {
                "id": stage.value,
                "name": stage_name(stage, say),
                "x": [each["stages"].get(stage, {"ms": 0})["ms"] for each in seen],
            }
            for stage in present
        ],
    }


def _percent(gain: float) -> float:
    return round(gain * 100, 2)


def _mib(count: int | None) -> float | None:
    return None if count is None else round(count / MIB, 2)


def _shares(values: list[float], wholes: list[float]) -> list[float]:
    return [round(value / whole, 4) if whole else 0.0 for value, whole in zip(values, wholes, strict=True)]
