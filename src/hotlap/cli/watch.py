"""Look at a running job from another shell: stages now, speed, memory, monitors, progress and time left.

hotlap watch last
hotlap watch .hotlap/runs/20260101-120000-train --json -
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.cli._output import (
    add_json_option,
    add_language_option,
    add_run_argument,
    check_json_target,
    write_json,
)

if TYPE_CHECKING:
    from hotlap.watch.live.reader import LiveReader

_EVERY_S = 1.0
_OVER = ("ended", "killed", "gone")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    add_language_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    from hotlap.launch.runfolder import find_run
    from hotlap.pipeline import live_reader

    check_json_target(options.json)
    reader = live_reader(Path(find_run(options.stored)).resolve())
    if options.json:
        write_json(options.json, {"schema": 1, **reader.look()})
        return 0
    if not sys.stdout.isatty():
        _show(reader, options.lang)
        return 0
    return _follow(reader, options.lang)


def _show(reader: LiveReader, lang: str) -> None:
    from hotlap.report import sheet
    from hotlap.report.live.picture import draw

    view = reader.look()
    sheet.show(lambda colour, ascii_only: draw(view, lang, colour, ascii_only))


def _follow(reader: LiveReader, lang: str) -> int:
    """Until the job is over, or the user has seen enough; the last look stays on the screen."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from hotlap.report import sheet
    from hotlap.report.live.picture import draw
    from hotlap.report.locale import Phrases

    keys = Phrases(lang)("live.keys")
    colour = sheet.wants_colour(sys.stdout)
    try:
        with Live(console=Console(highlight=False), auto_refresh=False, screen=True) as live:
            while (view := reader.look())["state"] not in _OVER:
                drawn = draw(view, lang, colour)
                live.update(Text.from_ansi(f"{drawn}\n{keys}"), refresh=True)
                time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        pass
    _show(reader, lang)
    return 0
