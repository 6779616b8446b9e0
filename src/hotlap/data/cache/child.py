"""Another process that fetches items, so that nothing in the script's own process moves by it.

The script's random numbers, lazily opened files, counters and generators of its dataset are all touched in the
child alone. A child ends by itself when its parent is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

from hotlap.data.cache.messages import CannotCacheError
from hotlap.sameness import random_states

LOOKS_FOR_PARENT_S = 1.0
ENDS_WITHIN_S = 5.0


class LateError(CannotCacheError):
    """Nothing came in time."""


class HelperProcess:
    """Answers calls of `function(subject, *args)`, one after the other. The subject comes over by fork if possible."""

    def __init__(self, subject: Any, seed: int) -> None:
        if multiprocessing.current_process().daemon:
            raise CannotCacheError("this process is a daemon, which may not start others")
        context = multiprocessing.get_context(start_method())
        self.connection, theirs = context.Pipe()
        self.process = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(theirs, subject, seed, os.getpid()), daemon=True
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # of fork beside threads, as DataLoader's own
                self.process.start()
        except (AttributeError, TypeError, OSError, pickle.PicklingError) as fault:
            raise CannotCacheError(f"no other process could be started for it ({fault})") from fault
        theirs.close()

    def ask(self, function: Callable[..., Any], *args: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # `answer` says how it ended
            self.connection.send((function, args))

    def answer(self, within_s: float) -> Any:
        """What the call gave; raises what it raised, where that is a refusal."""
        if not self.connection.poll(within_s):
            raise LateError(f"items did not arrive within {within_s:.0f} s from another process")
        try:
            worked, result = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(ENDS_WITHIN_S)
            ended = self.process.exitcode
            raise CannotCacheError(f"the process that fetched items died (exit code {ended})") from None
        if not worked:
            raise result
        return result

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join(ENDS_WITHIN_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


def start_method() -> str:
    """Elsewhere a forked process may not use what the system's libraries have started."""
    return "fork" if sys.platform == "linux" else "spawn"


def call(subject: Any, seed: int, within_s: float, function: Callable[..., Any], *args: Any) -> Any:
    """One call in a process of its own."""
    child = HelperProcess(subject, seed)
    try:
        child.ask(function, *args)
        return child.answer(within_s)
    finally:
        child.end()


def _serve(connection: Any, subject: Any, seed: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever the script has set for itself
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    torch.set_num_threads(1)
    random_states.seed(seed)
    with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            while not connection.poll(LOOKS_FOR_PARENT_S):
                if os.getppid() != parent:
                    return
            function, args = connection.recv()
            connection.send(_tried(function, subject, args))


def _tried(function: Callable[..., Any], subject: Any, args: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, function(subject, *args)
    except CannotCacheError as refusal:
        return False, refusal
    except Exception as fault:
        last = traceback.extract_tb(fault.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119
        return False, CannotCacheError(f"{type(fault).__name__} at {where}: {fault}")
