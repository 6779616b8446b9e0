"""Where a command's result goes: drawn in the terminal, or as JSON to a file or to standard output."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from hotlap.errors import UsageError, visible
from hotlap.facts.codec import write_bytes
from hotlap.units import rate, size

if TYPE_CHECKING:
    from rich.progress import TaskID

    from hotlap.export.sending import Target


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE|-", help="write the same facts as JSON; - is standard output")


def add_language_option(parser: argparse.ArgumentParser) -> None:
    from hotlap.report.locale import LANGUAGES

    parser.add_argument("--lang", default="en", help=f"{' or '.join(LANGUAGES)} (default en)")


def write_json(target: str, facts: Mapping[str, Any]) -> None:
    """Write facts to a file, or print them when the target is `-`."""
    from hotlap.report.renderers.json import Json

    text = Json().render(facts)
    if target == "-":
        print_text(text)
    else:
        save_text(Path(target), text, "--json")


def check_json_target(target: str | None) -> None:
    """Refuse a file that cannot be written before the job has run for it."""
    path = Path(target) if target and target != "-" else None
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent} to write to"
        raise UsageError(f"{path} cannot be written: {reason}.", "choose another file for --json")


def save_text(path: Path, text: str, option: str) -> None:
    """Write a file that the user named with an option."""
    try:
        # A path in the text may hold bytes that are no text.
        write_bytes(path, text.encode("utf-8", "replace"), shared=True)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}."
        raise UsageError(what, f"choose another file for {option}") from None


def print_text(text: str) -> None:
    """Print what may hold characters that this terminal or pipe does not know."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(visible(text).encode(encoding, "replace").decode(encoding))


# What the commands on stored runs share: how a run is named, and how it is read.


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


# Cards in the terminal: the docstring of a unit's module, whole or its first line.


_WIDEST = 100
_BEGINS_ANEW = re.compile(r"`[^`]+`:|[-*] ")  # a line of a list: it is not joined to the line before


def whole(name: str, card: str) -> str:
    """One card under its name, its paragraphs wrapped to the terminal."""
    lines = (line for paragraph in _paragraphs(card.strip().splitlines()) for line in _wrapped(paragraph))
    return "\n".join([name, *lines, ""])


def listing(cards: Mapping[str, str]) -> str:
    """One entry for each unit: its id and the first line of its card."""
    width = max(len(name) for name in cards) + 2
    entries = [f"{name:{width}}{card.strip().partition(chr(10))[0]}" for name, card in sorted(cards.items())]
    return "".join(f"{line}\n" for entry in entries for line in _wrap(entry, "", " " * width))


def _paragraphs(lines: Iterable[str]) -> Iterable[str]:
    paragraph = ""
    for line in lines:
        joins = paragraph and _indent(line) == _indent(paragraph) and not _BEGINS_ANEW.match(line.strip())
        if joins and line.strip() and _indent(line):
            paragraph += f" {line.strip()}"
            continue
        yield from [paragraph] if paragraph else []
        paragraph = line
        if not line.strip():
            yield ""
            paragraph = ""
    yield paragraph


def _wrapped(paragraph: str) -> list[str]:
    indent = " " * _indent(paragraph)
    hanging = indent + "  " if _BEGINS_ANEW.match(paragraph.strip()) else indent
    return _wrap(paragraph.strip(), indent, hanging) or [""]


def _wrap(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        text, _width(), initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)


def add_export_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        metavar="TOOLS",
        help="also send the figures to mlflow, otel, prometheus, tensorboard or wandb: TOOL[=WHERE],...",
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    add_export_option(parser)
    add_json_option(parser)


def wanted_exports(options: argparse.Namespace) -> tuple[Target, ...]:
    """What is unknown or not installed is refused before the job runs."""
    if options.export is None:
        return ()
    from hotlap.export.sending import read_targets

    return read_targets(options.export)


def export(view: Mapping[str, Any], folder: Path, targets: tuple[Target, ...]) -> None:
    if targets:
        from hotlap.pipeline import export as send

        send(view, folder, targets, _say)


def _say(line: str) -> None:
    print(visible(f"hotlap: {line}"), file=sys.stderr, flush=True)


# A bar on standard error with rate and time left, for work that counts samples.


_DRAW_S = 0.1
"""Samples may come every few microseconds; the eye needs ten looks a second."""


class SampleBar:
    """Shown in a terminal only: a log file needs no bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
