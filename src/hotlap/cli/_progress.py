"""A bar on standard error with rate and time left, for work that counts samples."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hotlap.units import rate, size

_DRAW_S = 0.1
"""Samples may come every few microseconds; the eye needs ten looks a second."""


class SampleBar:
    """Shown in a terminal only: a log file needs no bar."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._began = self._drawn = 0.0
        self._samples = self._bytes = self._before = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, what: str, samples: int, done: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=samples, completed=done, speed="")
        self._began, self._samples, self._bytes, self._before = time.monotonic(), 0, 0, done

    def tell(self, samples: int, size_in_bytes: int) -> None:
        if self._task is None:
            return
        self._samples += samples
        self._bytes += size_in_bytes
        now = time.monotonic()
        if now - self._drawn > _DRAW_S:
            self._drawn = now
            seconds = max(now - self._began, 1e-3)
            speed = f"{rate(self._samples / seconds)} samples/s, {size(self._bytes / seconds)}/s"
            self._bar.update(self._task, completed=self._before + self._samples, speed=speed)
