"""The tasks of a job on a Ray cluster: the same tasks, the same bytes. All machines must see the same folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hotlap.data.pack.job import Job
from hotlap.data.pack.work import Task, Tell, Workshop
from hotlap.errors import HotlapError, UsageError


def carry_out_on_ray(job: Job, folder: Path, tasks: Sequence[Task], tell: Tell) -> None:
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


def _carry_out(job: Job, folder: Path, task: Task, here: Path) -> tuple[int, int] | tuple[str, str]:
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
