"""How a parent tells its children about the probe: environment variables, so that any launcher passes them on."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotlap.facts import private

FOLDER = "HOTLAP_PROBE"  # where the children write
ORIGIN = "HOTLAP_ORIGIN"  # nanoseconds of the monotonic clock that the run's times count from
PHASES = "HOTLAP_PHASES"  # what is measured after the window, with commas
EXPERIMENTS = "HOTLAP_EXPERIMENTS"  # "on": after the window settings are tried, round by round
PLAN = "HOTLAP_PLAN"  # the plan that the children fit, as the parent has checked it
TAPS = "HOTLAP_TAPS"  # "off": nothing is recorded, a plan is only applied
WATCH = "HOTLAP_WATCH"  # the module whose `install(folder)` puts monitors beside the script; it lives in a layer above
WITNESS = "HOTLAP_WITNESS"  # "steps:seed:samples:epoch": what the first steps compute is written down, nothing is timed
REFERENCE = "HOTLAP_REFERENCE"  # the file of the guard's reference batches
PUT = "put:"  # before its path: this run puts them aside there, others read them
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
    experiments: bool = False,
) -> dict[str, str]:
    """The environment of a job under hotlap; `phases` are what to measure after the window, and `experiments` come
    before them.

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
    environment[EXPERIMENTS] = "on" if experiments else ""
    return environment


# Counts optimizer steps of the training process in a few bytes of shared memory: a look from outside costs it
# nothing.
#
# A run under a plan may last for weeks, so unlike a profile it leaves no mark for each step.


_FORMAT = "qqq"
_SIZE = struct.calcsize(_FORMAT)
_ENDING = ".steps"


class StepCounter:
    """Of one process; a fork that trains gets a file of its own. Of several optimizers, the one that steps most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start_anew()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._start_anew)

    def count(self, optimizer: object) -> int:
        """One more step of this optimizer; the number of steps so far."""
        view = self._view or self._open()
        made = self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
        if made > view[0]:
            view[2] = time.perf_counter_ns()
            view[0] = made
            if made == 1:
                view[1] = view[2]
        return view[0]

    def _start_anew(self) -> None:
        self._view: memoryview[int] | None = None
        self._made: dict[int, int] = {}

    def _open(self) -> memoryview[int]:
        path = self._folder / f"{os.getpid()}{_ENDING}"
        try:
            private.write(path, bytes(_SIZE))
            with path.open("r+b") as file:
                self._view = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")
        except OSError:  # the run is over and its folder gone
            self._view = memoryview(bytearray(_SIZE)).cast("q")
        return self._view


@dataclass(frozen=True)
class Counted:
    """Steps of one process, and the seconds between its first and its last."""

    steps: int
    seconds: float


def counted(folder: Path) -> dict[int, Counted]:
    """By process id; those that made no step are left out."""
    found = {}
    for path in folder.glob(f"*{_ENDING}"):
        content = path.read_bytes()
        if len(content) == _SIZE:
            steps, first, last = struct.unpack(_FORMAT, content)
            if steps:
                found[int(path.name.removesuffix(_ENDING))] = Counted(steps, (last - first) / 1e9)
    return found
