"""Makes a parcel of a view, and hands it to the tools that the user named.

Each in a process of its own: what hangs, prints or crashes there harms nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hotlap.discover import pick, unit
from hotlap.errors import UsageError
from hotlap.export import tools
from hotlap.facts import codec
from hotlap.ports.exporter import Exporter, Metric, Parcel, Series

PATIENCE_S = 120.0
"""Importing a tracker takes up to ten seconds, uploading a report of some MiB over a slow line a minute."""
ANSWER = "hotlap-export: "  # begins the line of the child's output that says how it went
_SOURCE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """A tool, and where in it: `where` is the tool's own affair, empty for its default."""

    tool: str
    where: str = ""


@dataclass(frozen=True)
class Sent:
    """How one export went: `at` says where to look, `fault` what went wrong."""

    target: Target
    at: str = ""
    fault: str = ""


def read_targets(text: str | None) -> tuple[Target, ...]:
    """Of `--export`; what is unknown or not installed is refused before a job runs for it."""
    words = [word.strip() for word in text.split(",")] if text else []
    parts = [word.partition("=") for word in words]
    targets = tuple(Target(pick("export", tool, names()), where) for tool, _, where in parts)
    for target in targets:
        exporter = exporter_of(target.tool)
        missing = [module for module in exporter.needs if not _is_there(module)]
        if missing:
            raise UsageError(
                f"--export {target.tool} needs {missing[0].partition('.')[0]}, which is not installed here.",
                f"pip install 'hotlap[{exporter.extra}]'",
            )
    return targets


def names() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(tools.__path__)]


def exporter_of(name: str) -> Exporter:
    return unit(tools, Exporter, name)  # type: ignore[type-abstract]


def send(parcel: Parcel, targets: Sequence[Target], say: Callable[[str], None]) -> list[Sent]:
    """To all at once; each answer is reported, and none raises."""
    if not targets:
        return []
    body = json.dumps(codec.to_plain(parcel))
    with ThreadPoolExecutor(len(targets)) as pool:
        sent = list(pool.map(lambda target: _send(body, target), targets))
    for each in sent:
        if each.fault:
            again = f"hotlap report {parcel.folder} --export {each.target.tool}"
            say(f"not exported to {each.target.tool}: {each.fault}\n  -> the run is kept; try again: {again}")
        else:
            say(f"exported to {each.target.tool}: {each.at}")
    return sent


def _send(body: str, target: Target) -> Sent:
    paths = [str(_SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "hotlap.export.sending", target.tool, target.where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # with what it starts: wandb has a service
            encoding="utf-8",
            errors="replace",
        )
    except OSError as fault:
        return Sent(target, fault=f"{fault.strerror or fault}.")
    try:
        output, _ = child.communicate(body, PATIENCE_S)
    except subprocess.TimeoutExpired:
        return Sent(target, fault=f"no answer in {PATIENCE_S:.0f} s.")
    finally:
        _end(child)
    return _answer(output, target, child.returncode)


def _answer(output: str, target: Target, code: int) -> Sent:
    lines = output.splitlines()
    answers = [line.removeprefix(ANSWER) for line in lines if line.startswith(ANSWER)]
    if not answers:
        last = next((line for line in reversed(lines) if line.strip()), "")
        return Sent(target, fault=f"its process ended with exit code {code}. {last}".strip())
    at, fault = json.loads(answers[-1])
    return Sent(target, at, fault)


def _end(child: subprocess.Popen[str]) -> None:
    """With all that it left running."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
    for pipe in filter(None, (child.stdin, child.stdout)):
        pipe.close()


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def main(tool: str, where: str) -> int:
    """The process that exports: the parcel comes on standard input."""
    parcel = codec.from_plain(Parcel, json.loads(sys.stdin.read()))
    at = fault = ""
    try:
        at = exporter_of(tool).send(parcel, where)
    except Exception as error:
        first = (str(error).strip() or "no reason was given").splitlines()[0]
        fault = f"{type(error).__name__}: {first}"
    print(f"\n{ANSWER}{json.dumps([at, fault])}", flush=True)
    return 1 if fault else 0


# What is exported of a view: each figure that was measured, under one name in all tools.


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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
