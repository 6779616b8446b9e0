"""How a parent tells its children about the probe: environment variables, so that any launcher passes them on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = "HOTLAP_PROBE"  # where the children write
ORIGIN = "HOTLAP_ORIGIN"  # nanoseconds of the monotonic clock that the run's times count from
PHASES = "HOTLAP_PHASES"  # what is measured after the window, with commas
PLAN = "HOTLAP_PLAN"  # the plan that the children fit, as the parent has checked it
TAPS = "HOTLAP_TAPS"  # "off": nothing is recorded, a plan is only applied
WATCH = "HOTLAP_WATCH"  # the module whose `install(folder)` puts monitors beside the script; it lives in a layer above
WITNESS = (
    "HOTLAP_WITNESS"  # "steps:seed:samples": what the first steps compute is written down, nothing is timed
)
IMPORTS = "HOTLAP_IMPORTS"  # the file for what the job imports; its next runs may begin with that
WARM = "HOTLAP_WARM"  # the socket of a process that imports that, and forks where the script would begin
_SITE = Path(__file__).parent / "site"


def already_inside() -> str | None:
    """The folder of the hotlap that this process runs under, if any; one that has gone was of a run that is over."""
    folder = os.environ.get(FOLDER)
    return folder if folder and Path(folder).is_dir() else None


def child_environment(
    folder: Path,
    phases: Sequence[str] = (),
    base: Mapping[str, str] | None = None,
    *,
    plan: Path | None = None,
    taps: bool = True,
    watch: str = "",
) -> dict[str, str]:
    """The environment of a job under hotlap; `phases` are what to measure after the window.

    `plan` is a file that `passed_plan` wrote. Without `taps` the job is not measured: a run may last for weeks. `watch`
    names the module that puts monitors in place.
    """
    environment = dict(os.environ if base is None else base)
    python_path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(_SITE), *([python_path] if python_path else [])])
    environment[FOLDER] = str(folder)
    environment[PHASES] = ",".join(phases)
    environment[ORIGIN] = str(time.perf_counter_ns())
    environment[PLAN] = str(plan) if plan else ""
    environment[TAPS] = "on" if taps else "off"
    environment[WATCH] = watch
    return environment
