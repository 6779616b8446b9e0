"""Worker processes of this machine that share the tasks of a job."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from hotlap.data.budget import usable_cores
from hotlap.data.pack.job import PackJob
from hotlap.data.pack.work import PackTask, Tell, Workshop
from hotlap.errors import HotlapError, UsageError

_TELL_S = 0.1
"""How often a worker reports; a worker whose parent has gone notices it by then."""


def carry_out(job: PackJob, folder: Path, tasks: Sequence[PackTask], tell: Tell) -> None:
    """All tasks, in as many processes as there are cores; the first error ends them all."""
    workers = min(usable_cores(), len(tasks))
    if workers < 2:
        shop = Workshop(job, folder)
        for task in tasks:
            shop.carry_out(task, tell)
        return
    start = multiprocessing.get_context(
        "spawn"
    )  # a fork would copy locks of torch's threads in an unknown state
    waiting = deque(tasks)
    crew: dict[Connection, Any] = {}
    try:
        for _ in range(workers):
            ours, theirs = start.Pipe()
            process = start.Process(target=_work, args=(theirs, job, folder), daemon=True)
            process.start()
            theirs.close()
            crew[ours] = process
            ours.send(waiting.popleft())
        _attend(crew, waiting, tell)
    finally:
        for process in crew.values():
            process.kill()
            process.join()


def _attend(crew: dict[Connection, Any], waiting: deque[PackTask], tell: Tell) -> None:
    while crew:
        for pipe in wait(list(crew)):
            assert isinstance(pipe, Connection)
            try:
                said = pipe.recv()
            except EOFError:
                process = crew[pipe]
                process.join()
                remedy = "if memory was short, choose more --shards; then run the same command again"
                raise HotlapError(f"a worker ended with exit code {process.exitcode}.", remedy) from None
            if isinstance(said, HotlapError):
                raise said
            if said == "done":
                if waiting:
                    pipe.send(waiting.popleft())
                else:
                    pipe.send(None)
                    crew.pop(pipe).join()
            else:
                tell(*said)


def _work(pipe: Connection, job: PackJob, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    report = ProgressReporter(pipe)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            shop = Workshop(job, folder)
            with shop.place.as_worker():
                while (task := pipe.recv()) is not None:
                    shop.carry_out(task, report.tell)
                    report.flush()
                    pipe.send("done")
        except HotlapError as error:
            pipe.send(HotlapError(error.what, error.remedy))
        except (MemoryError, OSError) as error:
            if not isinstance(error, BrokenPipeError | ConnectionResetError):
                pipe.send(
                    HotlapError(
                        f"packing failed: {type(error).__name__}: {error}.", "run the same command again"
                    )
                )
    os._exit(0)  # the user's modules may have left threads behind


class ProgressReporter:
    """Adds up what is done and sends it now and then."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._done = (0, 0)
        self._sent = time.monotonic()

    def tell(self, samples: int, size: int) -> None:
        self._done = (self._done[0] + samples, self._done[1] + size)
        if time.monotonic() - self._sent > _TELL_S:
            self.flush()

    def flush(self) -> None:
        self._pipe.send(self._done)
        self._done = (0, 0)
        self._sent = time.monotonic()


# The tasks of a job on a Ray cluster: the same tasks, the same bytes. All machines must see the same folders.


def carry_out_on_ray(job: PackJob, folder: Path, tasks: Sequence[PackTask], tell: Tell) -> None:
    """All tasks, on the cluster that Ray is connected to; without one, on a local Ray."""
    try:
        import ray
    except ImportError:
        raise UsageError(
            "Ray is not installed.", "pip install 'hotlap[ray]', or leave --engine away"
        ) from None
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    try:
        remote = ray.remote(max_retries=2)(_carry_out)
        open_tasks = [remote.remote(job, folder, task, Path.cwd()) for task in tasks]
        while open_tasks:
            ready, open_tasks = ray.wait(open_tasks)
            for each in ray.get(ready):
                _tell_or_raise(each, tell)
    except ray.exceptions.RayError as error:
        what = f"Ray could not do the work: {str(error).strip().splitlines()[-1]}"
        raise HotlapError(
            what, "install hotlap and share the folders on every machine of the cluster"
        ) from error
    finally:
        if started:
            ray.shutdown()


def _carry_out(job: PackJob, folder: Path, task: PackTask, here: Path) -> tuple[int, int] | tuple[str, str]:
    """What was done; or the error in plain words, since Ray would wrap it in its own."""
    done: list[tuple[int, int]] = []
    os.chdir(here)  # names of files and modules are meant from where the user is
    try:
        shop = Workshop(job, folder)
        with shop.place.as_worker():
            shop.carry_out(task, lambda samples, size: done.append((samples, size)))
    except HotlapError as error:
        return (error.what, error.remedy)
    return (sum(samples for samples, _ in done), sum(size for _, size in done))


def _tell_or_raise(result: tuple[Any, Any], tell: Tell) -> None:
    if isinstance(result[0], str):
        raise HotlapError(result[0], result[1])
    tell(*result)
