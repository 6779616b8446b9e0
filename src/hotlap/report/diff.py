"""The plain data of what changed between two profiles: what `hotlap diff --json` prints and what it draws.

Every figure stands as `before` and `after`, with their `ratio` where both are there and the first is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hotlap.facts.codec import SCHEMA
from hotlap.facts.timeline import Stage

View = Mapping[str, Any]

STEP = ("ms_mean", "ms_median", "ms_p95", "n")
RATES = ("samples_per_s", "steps_per_s", "tokens_per_s")
# Facts that bear on speed. What changes by itself from run to run (free memory, process ids) is not among them.
HOST = ("system", "machine", "cpu", "cores", "ram_bytes", "shm_bytes", "start_method", "compiler")
MACHINE = ("host.machine", "host.cpu", "host.cores", "host.ram_bytes", "host.gpus")
LOADER = ("batch_size", "num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "shuffle")
MODEL = ("kind", "parameters", "dtypes", "devices", "compiled")
OPTIMIZER = ("kind", "fused", "foreach")
RUNTIME = ("framework", "threads", "autocast", "grad_scaler", "debug", "tf32", "cudnn_benchmark", "backend")


def diff_view(before: View, after: View) -> dict[str, Any]:
    """What changed from one profile's view to another's."""
    differences = _differences(before, after)
    return {
        "schema": SCHEMA,
        "before": _side(before),
        "after": _side(after),
        "step": {name: _pair(before["step"][name], after["step"][name]) for name in STEP},
        "throughput": {name: _pair(before["throughput"][name], after["throughput"][name]) for name in RATES},
        "samples_per_step": _pair(_samples_per_step(before), _samples_per_step(after)),
        "coverage": _pair(before["coverage"], after["coverage"]),
        "overhead": _pair(before["overhead"], after["overhead"]),
        "stages": _stages(before["stages"], after["stages"]),
        "findings": _findings(before["findings"], after["findings"]),
        "foreign_cpu": _pair(*((view["cpu"] or {}).get("foreign") for view in (before, after))),
        "differences": differences,
        "same_machine": not any(each["what"] in MACHINE for each in differences),
    }


def _side(view: View) -> dict[str, Any]:
    return {
        "run": view["run"],
        "run_shown": view["run_shown"],
        "command": view["job"]["shown"],
        "verdict": view["verdict"],
        "ending": view["ending"],
        "cores": view["host"]["cores"],
    }


def _pair(before: float | None, after: float | None) -> dict[str, float | None]:
    ratio = after / before if before and after is not None else None
    return {"before": before, "after": after, "ratio": ratio}


def _samples_per_step(view: View) -> float | None:
    samples, steps = view["throughput"]["samples_per_s"], view["throughput"]["steps_per_s"]
    return samples / steps if samples is not None and steps else None


def _stages(before: View, after: View) -> dict[str, Any]:
    """The stages that held time in either run, in the order of a step."""
    found = {}
    for stage in Stage:
        pairs = {
            key: _pair(*(side[stage][key] if stage in side else None for side in (before, after)))
            for key in ("ms", "share")
        }
        if pairs["ms"]["before"] or pairs["ms"]["after"]:
            found[stage.value] = pairs
    return found


def _findings(before: Iterable[View], after: Iterable[View]) -> dict[str, list[dict[str, Any]]]:
    old, new = ({each["cause"]: each for each in findings} for findings in (before, after))
    return {
        "gone": [_finding(each) for cause, each in old.items() if cause not in new],
        "appeared": [_finding(each) for cause, each in new.items() if cause not in old],
        "stayed": [
            {"cause": cause, "before": _finding(each), "after": _finding(new[cause])}
            for cause, each in old.items()
            if cause in new
        ],
    }


def _finding(finding: View) -> dict[str, Any]:
    return {key: finding[key] for key in ("cause", "severity", "share")}


def _differences(before: View, after: View) -> list[dict[str, Any]]:
    old, new = _settings(before), _settings(after)
    names = [*old, *(name for name in new if name not in old)]
    return [
        {"what": name, "before": old.get(name), "after": new.get(name)}
        for name in names
        if old.get(name) != new.get(name)
    ]


def _settings(view: View) -> dict[str, Any]:
    """What a run's speed depends on, by name."""
    loaders = [each for each in view["loaders"] if each["training"]] or view["loaders"]
    return {
        "job.command": view["job"]["shown"],
        "job.folder": view["job"]["cwd"],
        "job.ranks": len(view["ranks"]),
        **_named("loader", loaders[0] if loaders else None, LOADER),
        **_named("dataset", loaders[0]["dataset"] if loaders else None, ("kind", "length")),
        **_named("model", view["model"], MODEL),
        **_named("optimizer", view["optimizers"][0] if view["optimizers"] else None, OPTIMIZER),
        **_named("runtime", view["runtime"], RUNTIME),
        **_named("host", view["host"], HOST),
        "host.gpus": [gpu["name"] for gpu in view["host"]["gpus"]],
        **_named("version", view["host"]["versions"], sorted(view["host"]["versions"])),
    }


def _named(family: str, facts: View | None, names: Iterable[str]) -> dict[str, Any]:
    return {f"{family}.{name}": facts.get(name) for name in names} if facts is not None else {}
