"""In the job's Python, before its script begins: imports what the job imports, then forks once for each run.

The forked process goes on where Python was: it runs the script as if it had just been started. The process that forks
it never does. Messages are JSON, one a packet; a request comes with the files for the run's output and errors.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hotlap.probe.control import WindowDone

MOST_BYTES = 1 << 16
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # not all of them are known to Windows, where this is only imported
_SIGNALS = [each for each in signal.Signals if each.name in _NAMES]


def wait_for_runs(channel: socket.socket) -> None:
    """Returns in each forked process; the one that forks ends here, once its channel is closed."""
    atexit.register(_leave_at_once)  # first of all, so that it is called last of all
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:  # Ctrl-C reaches the whole group; runs are ended by those who asked for them
        signal.signal(number, signal.SIG_IGN)
    os.close(os.pidfd_open(os.getpid()))  # where there is none, this raises before anything was forked
    _tell(channel, ready=_import_all(_received(channel)[0]["imports"]))
    running: dict[int, int] = {}  # by the file that tells of their end
    while True:
        listening: list[Any] = [channel, *running]
        ready = select.select(listening, [], [])[0]
        for ended in ready:
            if ended is not channel:
                code = os.waitstatus_to_exitcode(os.waitpid(running[ended], 0)[1])
                if not _tell(channel, pid=running.pop(ended), code=code):
                    os._exit(0)
                os.close(ended)
        if channel in ready:
            request, files = _received(channel)
            child = os.fork()
            if not child:
                _close([*running, channel.detach()])
                _begin(request["environment"], files, before)
                return
            running[os.pidfd_open(child)] = child
            _close(files)
            if not _tell(channel, pid=child):
                os.kill(child, signal.SIGKILL)  # nobody would ever end it
                os._exit(0)


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _import_all(path: str) -> bool:
    """Whether a run may be forked: torch is there, and no thread that it would lose."""
    for name in json.loads(Path(path).read_text(encoding="utf-8")):
        try:
            importlib.import_module(name)
        except Exception:
            continue  # the script may have caught it too; if not, its run will tell
    return "torch" in sys.modules and threading.active_count() == 1


def _received(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    content, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 2)
    if not content:
        os._exit(0)  # nobody will ask for a run any more
    return json.loads(content), files


def _tell(channel: socket.socket, **facts: Any) -> bool:
    try:
        channel.send(json.dumps(facts).encode())
    except OSError:
        return False
    return True


def _begin(environment: Mapping[str, str], files: list[int], handlers: Mapping[signal.Signals, Any]) -> None:
    """As a process that was just started with this environment and these files."""
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:  # else a library has put its own there, as in any run
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    for file, stream in zip(files, (1, 2), strict=True):
        os.dup2(file, stream)
    _close(files)
    os.environ.update(environment)
    # Python's random seeds itself anew after a fork, and torch's default seed is always the same.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _leave_at_once() -> None:
    """A run that hotlap has ended need not take its modules apart, which takes as long as many steps.

    One whose ending fails is left to Python: that is a result of its plan.
    """
    if WindowDone.raised and getattr(sys, "last_value", None) is None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue  # the script may have closed it
        os._exit(0)
