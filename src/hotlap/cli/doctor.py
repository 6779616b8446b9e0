"""Show what this machine means for training speed: cores, memory, GPU, storage, compiler."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.diagnose.checkup import Check, Level, checkup
from hotlap.errors import UsageError
from hotlap.facts.codec import SCHEMA, to_plain, write_text

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 100
STYLES = {Level.OK: "green", Level.HINT: "yellow", Level.WARNING: "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FOLDER and --json."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="also measure how fast this folder reads"
    )
    parser.add_argument(
        "--json", metavar="FILE|-", help="write the same facts as JSON; - prints nothing else"
    )


def run(options: argparse.Namespace) -> int:
    """Look at the machine and tell."""
    from hotlap.host.machine import inspect_host

    if options.folder is not None and not options.folder.is_dir():
        raise UsageError(f"there is no folder '{options.folder}'.", "name the folder that holds your data")
    host = inspect_host(options.folder)
    checks = checkup(host)
    facts = {"schema": SCHEMA, "host": to_plain(host), "checks": to_plain(checks)}
    if options.json == "-":
        sys.stdout.write(_as_json(facts))
        return 0
    if options.json is not None:
        _write(Path(options.json), facts)
    _show(checks, measured=host.storage is not None or options.folder is not None)
    return 0


def _as_json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=1) + "\n"


def _write(path: Path, facts: dict[str, Any]) -> None:
    try:
        write_text(path, _as_json(facts), shared=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.", "name another file, or - to print"
        ) from None


def _show(checks: tuple[Check, ...], *, measured: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    with console.capture() as drawing:
        console.print(_table(checks))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in drawing.get().splitlines()))
    console.print()
    warnings, hints = (sum(check.level is level for check in checks) for level in (Level.WARNING, Level.HINT))
    console.print(f"{_count(warnings, 'warning')}, {_count(hints, 'hint')}.")
    if not measured:
        console.print("hotlap doctor FOLDER also measures how fast the folder of your data reads.")


def _table(checks: tuple[Check, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("Fact", no_wrap=True)
    table.add_column("Here", max_width=26, overflow="fold")
    table.add_column("What it means for training speed", ratio=1)
    for check in checks:
        level = Text(check.level.value, style=STYLES[check.level])
        table.add_row(level, Text(check.topic), Text(check.value), Text(check.meaning))
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
