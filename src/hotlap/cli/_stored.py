"""What the commands on stored runs share: how a run is named, and how it is read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RUN_HELP = "a run folder, the end of a name in .hotlap/runs, or `last`"


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stored", metavar="RUN", help=RUN_HELP)


def stored_run(
    text: str, options: argparse.Namespace, *, again: bool = False
) -> tuple[Path, Mapping[str, Any]]:
    """The folder and the view of a stored run; `again` repeats its diagnosis."""
    from hotlap.launch.runfolder import find_run
    from hotlap.pipeline import view_of

    folder = find_run(text)
    leave_numpy_out(options)
    return folder, view_of(folder, again=again)


def leave_numpy_out(options: argparse.Namespace) -> None:
    """Before a timeline is read."""
    if options.own_process:
        with _numpy_left_out():
            import pyarrow  # noqa: F401


@contextmanager
def _numpy_left_out() -> Iterator[None]:
    """pyarrow imports numpy where it finds it, and does without it as well (since 18).

    To read a timeline takes no numpy, and importing it takes longer than all the rest. Others in the same
    process may want both, so this is only for a process that is nothing but the command line.
    """
    if "numpy" in sys.modules:
        yield
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["numpy"]
