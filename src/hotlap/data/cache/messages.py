"""Says how far a build is, on stderr: a bar in a terminal, elsewhere one line at the start and one at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hotlap.errors import HotlapError, visible
from hotlap.units import duration

Advance = Callable[[int], None]


def say(line: str) -> None:
    print(f"hotlap: {visible(line)}", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Call with the number of items that are new."""
    began = time.perf_counter()
    say(f"caching {what}")
    if sys.stderr.isatty():
        with _bar(total) as advance:
            yield advance
    else:
        yield lambda _: None
    say(f"cached {total:,} items in {duration(time.perf_counter() - began)}")


@contextmanager
def _bar(total: int) -> Iterator[Advance]:
    try:
        from rich import progress as bars
        from rich.console import Console
    except ImportError:  # the training's own environment may lack it
        yield lambda _: None
        return
    columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("items", total=total)
        yield lambda count: bar.update(task, advance=count)


# Why a dataset is not cached.


class CannotCacheError(HotlapError):
    """The dataset's items cannot be kept and served as they are; says why in one clause."""


class NoFileError(CannotCacheError):
    """The items can be kept, but not in a file that later runs would trust."""
