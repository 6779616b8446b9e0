"""How a parent tells its children about the probe: environment variables, so that any launcher passes them on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = "HOTLAP_PROBE"  # where the children write
ORIGIN = "HOTLAP_ORIGIN"  # nanoseconds of the monotonic clock that the run's times count from
PHASES = "HOTLAP_PHASES"  # what is measured after the window, with commas
_SITE = Path(__file__).parent / "site"


def already_inside() -> str | None:
    """The folder of the hotlap that this process runs under, if any; one that has gone was of a run that is over."""
    folder = os.environ.get(FOLDER)
    return folder if folder and Path(folder).is_dir() else None


def child_environment(
    folder: Path, phases: Sequence[str] = (), base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a probed job; `phases` are what to measure after the window."""
    environment = dict(os.environ if base is None else base)
    python_path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(_SITE), *([python_path] if python_path else [])])
    environment[FOLDER] = str(folder)
    environment[PHASES] = ",".join(phases)
    environment[ORIGIN] = str(time.perf_counter_ns())
    return environment
