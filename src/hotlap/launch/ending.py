"""Ends a job in a civil way: SIGINT, then SIGTERM, then SIGKILL, each with a grace time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import psutil

from hotlap.launch.tree import ProcessTree

POLL_S = 0.02
KILL_GRACE_S = 5.0
"""A killed process is gone at once, unless it hangs in the kernel (a dead network mount)."""


class Means(StrEnum):
    """What made the root process end."""

    NONE = "none"  # it had ended before
    INTERRUPT = "interrupt"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True)
class JobEnd:
    """How a job ended. `killed` had to be killed, `left` could not even be killed: process ids."""

    by: Means
    seconds: float
    killed: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


def end_job(pid: int, graces: tuple[float, float] = (10, 5)) -> JobEnd:
    """End the process and all below it; returns when all are gone. The caller is left to reap the process.

    SIGINT and SIGTERM go to the root alone, which ends its workers itself; only where it is gone and has
    left some behind do they get the signal. The graces are those of SIGINT, long enough to write a
    checkpoint, and of SIGTERM.
    """
    start = time.perf_counter()
    tree = ProcessTree(pid)
    root_ended_by = Means.NONE
    for means, grace in _ladder(graces):
        alive = tree.running()
        if not alive:
            break
        root_alive = pid in alive
        for process in [alive[pid]] if root_alive else alive.values():
            _send(process, means)
        _wake(alive.values())
        _wait_until_gone(tree, grace)
        if root_alive:
            root_ended_by = means
    root_killed = pid in tree.running()
    killed, left = _kill_all(tree)
    return JobEnd(Means.KILL if root_killed else root_ended_by, time.perf_counter() - start, killed, left)


def _ladder(graces: tuple[float, float]) -> Iterable[tuple[Means, float]]:
    """Windows has no way to interrupt a process politely from outside of its console."""
    if os.name == "nt":
        return [(Means.TERMINATE, graces[1])]
    return zip((Means.INTERRUPT, Means.TERMINATE), graces, strict=True)


def _send(process: psutil.Process, means: Means) -> None:
    try:
        if means is Means.INTERRUPT:
            process.send_signal(signal.SIGINT)
        elif means is Means.TERMINATE:
            process.terminate()
        else:
            process.kill()
    except psutil.Error:  # it has just ended, or is not ours: what is left is reported
        return


def _wake(processes: Iterable[psutil.Process]) -> None:
    """A process that is stopped hears of no signal before it goes on."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.resume()


def _wait_until_gone(tree: ProcessTree, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while tree.running() and time.perf_counter() < end:
        time.sleep(POLL_S)


def _kill_all(tree: ProcessTree) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kill again and again, as a process may start another between a look and the kill."""
    killed: set[int] = set()
    end = time.perf_counter() + KILL_GRACE_S
    while (alive := tree.running()) and time.perf_counter() < end:
        for pid, process in alive.items():
            _send(process, Means.KILL)
            killed.add(pid)
        time.sleep(POLL_S)
    left = tuple(sorted(tree.running()))
    return tuple(sorted(killed - set(left))), left
