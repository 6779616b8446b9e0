"""A session in this process whose taps are taken away again, and real scripts under the whole probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hotlap.facts.timeline import Ending, Timeline
from hotlap.launch.environment import ORIGIN, child_environment
from hotlap.probe import boundary, control
from hotlap.probe.feed import Feed
from hotlap.probe.marks import VALUE_FROM, Kind
from hotlap.probe.session import Session
from hotlap.timeline.gather import Recording, read_integers, read_recordings, timelines

RUN_SECONDS = 240  # a limit that turns a hang into a failure


@dataclass(frozen=True)
class Probed:
    """A script that has run, and what the probe wrote beside it."""

    folder: Path
    exit_code: int
    stdout: str
    stderr: str
    origin: int

    @property
    def printed(self) -> Any:
        """The last line of standard output, which these scripts print as JSON."""
        assert self.exit_code == 0, self.stderr
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def recordings(self) -> list[Recording]:
        return read_recordings(self.folder)

    @property
    def timeline(self) -> Timeline:
        end = time.perf_counter_ns() - self.origin
        (only,) = timelines(self.recordings, Ending.FINISHED, end, {})
        return only


class Runner:
    """Runs Python text as a script in a folder of its own, with the probe or without it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.count = 0

    def __call__(
        self, script: str, *arguments: str, stop_after: int | None = None, phases: Sequence[str] = ()
    ) -> Probed:
        return self._start(script, arguments, probe=True, stop_after=stop_after, phases=phases)()

    def both(self, script: str, *arguments: str) -> tuple[Probed, Probed]:
        """With the probe and alone, at the same time."""
        waits = [self._start(script, arguments, probe=probe) for probe in (True, False)]
        watched, alone = (wait() for wait in waits)
        return watched, alone

    def _start(
        self,
        script: str,
        arguments: Sequence[str],
        *,
        probe: bool,
        stop_after: int | None = None,
        phases: Sequence[str] = (),
    ) -> Callable[[], Probed]:
        self.count += 1
        work = self.home / f"run{self.count}"
        folder = work / "probe"
        folder.mkdir(parents=True)
        control.create(folder)
        if stop_after is not None:
            control.stop_after(folder, stop_after)
        (work / "script.py").write_text(script)
        environment = child_environment(folder, phases) if probe else dict(os.environ)
        command = [sys.executable, "script.py", *arguments]
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return partial(_finish, process, folder, int(environment.get(ORIGIN, "0")))


def _finish(process: subprocess.Popen[str], folder: Path, origin: int) -> Probed:
    try:
        stdout, stderr = process.communicate(timeout=RUN_SECONDS)
    finally:
        process.kill()
    return Probed(folder, process.returncode, stdout, stderr, origin)


@pytest.fixture
def run_script(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.fixture(scope="module")
def run_script_once(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """For a run that several tests of a file look at."""
    return Runner(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A session without taps: a test installs those that it looks at."""
    control.create(tmp_path)
    made = Session(tmp_path, time.perf_counter_ns())
    yield made
    made.detach()
    faults = [*boundary.faults]
    boundary.faults.clear()
    assert not faults, "a test that plants a fault takes it away again"


@pytest.fixture
def feed() -> Feed:
    """Training has taken one batch a step from loader 0."""
    learnt = Feed()
    for _ in range(4):
        learnt.gave(0, "batch")
        learnt.step_made()
    learnt.learns = False
    return learnt


Read = Callable[[], list[tuple[str, int]]]


@pytest.fixture
def written(session: Session) -> Read:
    """What the session has marked so far, as ("+FORWARD", time), ("-FORWARD", time) or ("128", value)."""

    def read() -> list[tuple[str, int]]:
        session.ring.flush()
        return [(_name(mark & 255), mark >> 8) for mark in read_integers(session.ring.path)]

    return read


def _name(code: int) -> str:
    return str(code) if code >= VALUE_FROM else "+-"[code & 1] + Kind(code >> 1).name
