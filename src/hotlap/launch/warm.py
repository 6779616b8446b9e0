"""Starts the runs of one job with its libraries imported already, which is most of what a short run takes.

The first run is started as ever and writes down what it imports. For the next ones a process of the job's own Python
imports that, and forks where the script would begin. See docs/adr/0015.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import psutil

from hotlap.facts.job import Job
from hotlap.host.interpreter import is_python
from hotlap.launch.environment import IMPORTS, WARM, child_environment
from hotlap.launch.process import ProcessHandle, Signals, cold
from hotlap.launch.warmed import MOST_BYTES

NAME = "imports.json"
_PATIENCE_S = 60.0  # for importing: a disk may be slow
_ANSWER_S = 10.0  # for a fork
_GRACE_S = 2.0  # to leave: it does so when it looks up, and an import may hold it
_POLL_S = 0.02
_LOST = 1  # the exit code of a run that nobody was left to wait for

Streams = tuple[IO[bytes], IO[bytes]]


def possible(job: Job) -> bool:
    """Of a launcher's own imports little is gained, and its exit is its own affair."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and is_python(job.argv[0])


class Warmth:
    """How runs of a job are started; `folder` keeps what it imports."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._path = folder / NAME
        self._forker: Forker | None = None
        self._off = not possible(job)
        self.proved = False  # a forked run has trained

    def start(
        self, job: Job, environment: Mapping[str, str], signals: Signals, streams: Streams
    ) -> ProcessHandle:
        """As `process.cold`; warm where that is possible by now."""
        if job != self._job or self._off:
            return cold(job, environment, signals, streams)
        if not self._path.is_file():
            return cold(job, {**environment, IMPORTS: str(self._path)}, signals, streams)
        self.prepare(signals)
        if self._forker is not None:
            try:
                return self._forker.run(environment, streams)
            except (OSError, ValueError):
                self.cool()
        return cold(job, environment, signals, streams)

    def prepare(self, signals: Signals) -> None:
        """Imports ahead as soon as it is known what. Before a run begins, so that none has it in its own time."""
        if self._off or self._forker is not None or not self._path.is_file():
            return
        try:
            self._forker = Forker(self._job, self._path, signals)
        except (OSError, ValueError):
            self.cool()

    def cool(self) -> None:
        """From now on all runs are started as ever."""
        self._off = True
        self.close()

    def close(self) -> None:
        if self._forker is not None:
            self._forker.close()
        self._forker = None


class Forker:
    """The process that has imported what the job imports."""

    def __init__(self, job: Job, imports: Path, signals: Signals) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._base = {**child_environment(imports.parent), WARM: str(theirs.fileno())}
        with theirs:
            self._process = subprocess.Popen(
                job.argv,
                cwd=job.cwd,
                env=self._base,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=signals.for_child,
                pass_fds=[theirs.fileno()],
            )
        self._codes: dict[int, int] = {}
        try:
            self._channel.send(json.dumps({"imports": str(imports)}).encode())
            if not self._receive(_PATIENCE_S).get("ready"):
                raise OSError("what the job imports cannot be imported ahead")
        except (OSError, ValueError):
            self.close()
            raise

    def run(self, environment: Mapping[str, str], streams: Streams) -> WarmChild:
        changed = {key: value for key, value in environment.items() if self._base.get(key) != value}
        body = json.dumps({"environment": changed}).encode()
        socket.send_fds(self._channel, [body], [stream.fileno() for stream in streams])
        while "pid" not in (told := self._receive(_ANSWER_S)) or "code" in told:
            self._note(told)
        return WarmChild(told["pid"], self)

    def code(self, pid: int) -> int | None:
        """How the run has ended, as subprocess tells it; None while it goes on."""
        try:
            while pid not in self._codes:
                self._note(self._receive(0.0))
        except TimeoutError:
            return None
        except (OSError, ValueError):  # whoever waited for it is gone
            return _LOST if _over(pid) else None
        return self._codes[pid]

    def close(self) -> None:
        """Runs that are under way go on."""
        self._channel.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _note(self, told: Mapping[str, Any]) -> None:
        if "code" in told:
            self._codes[told["pid"]] = told["code"]

    def _receive(self, seconds: float) -> dict[str, Any]:
        self._channel.settimeout(seconds)
        try:
            content = self._channel.recv(MOST_BYTES)
        except BlockingIOError:
            raise TimeoutError from None
        finally:
            self._channel.settimeout(None)
        if not content:
            raise ConnectionError("the process that forks has ended")
        facts: dict[str, Any] = json.loads(content)
        return facts


def _over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return True


class WarmChild:
    """A forked run, with what is used of subprocess.Popen."""

    def __init__(self, pid: int, forker: Forker) -> None:
        self.pid = pid
        self._forker = forker

    def poll(self) -> int | None:
        return self._forker.code(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.Signals(number))
