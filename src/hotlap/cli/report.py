"""Show a stored run again: as a web page, in the terminal, for a pull request, for programs, as a trace.

hotlap report last --open
hotlap report last --format markdown --lang zh
hotlap report .hotlap/tune/train --open
hotlap report last --export tensorboard,mlflow=http://tracking:5000
"""

from __future__ import annotations

import argparse
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.cli._output import (
    add_export_option,
    add_language_option,
    add_run_argument,
    export,
    print_text,
    save_text,
    stored_run,
    wanted_exports,
)
from hotlap.discover import pick, unit
from hotlap.errors import UsageError
from hotlap.ports.renderer import Renderer
from hotlap.report import renderers

_HTML, _TERMINAL, _TRACE = "html", "terminal", "perfetto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument(
        "--format", default=_HTML, metavar="FORMAT", help=f"{', '.join(_formats())} (default {_HTML})"
    )
    add_language_option(parser)
    add_export_option(parser)
    parser.add_argument("--open", action="store_true", help="open the web page in the browser")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="where to write it (default: report.html in the run folder; else printed)",
    )


def run(options: argparse.Namespace) -> int:
    renderer = unit(renderers, Renderer, pick("format", options.format, _formats()))  # type: ignore[type-abstract]
    if options.open and renderer.id != _HTML:
        raise UsageError(f"--open shows the web page, not {renderer.id}.", "leave --format away")
    targets = wanted_exports(options)
    folder, view = _stored(options)
    if "kind" in view and renderer.id == _TRACE:
        raise UsageError(
            f"{folder} holds many runs, and a trace is of one.", "hotlap profile records a trace"
        )
    if renderer.id == _HTML or options.out:
        path = _write(renderer, folder, view, options)
        print(path)
        export(view, folder, targets)
        return _open(path) if options.open else 0
    if renderer.id == _TERMINAL:
        from hotlap.report.renderers.terminal import show

        show(view, options.lang)
    else:
        print_text(renderer.render(view, options.lang))
    export(view, folder, targets)
    return 0


def _stored(options: argparse.Namespace) -> tuple[Path, Mapping[str, Any]]:
    """Of a search or a comparison, or else of a run."""
    from hotlap.launch.runfolder import find_run
    from hotlap.pipeline.outcome import outcome_of

    folder = find_run(options.stored)
    outcome = outcome_of(folder)
    return stored_run(options.stored, options) if outcome is None else (folder, outcome)


def _formats() -> list[str]:
    return [info.name for info in pkgutil.iter_modules(renderers.__path__)]


def _write(renderer: Renderer, folder: Path, view: Mapping[str, Any], options: argparse.Namespace) -> Path:
    if options.out is None:
        from hotlap.pipeline import write_report

        return write_report(folder, view, options.lang)
    save_text(Path(options.out), renderer.render(view, options.lang), "--out")
    return Path(options.out)


def _open(path: Path) -> int:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        print("hotlap: no browser could be started here.\n  -> open the file above yourself", file=sys.stderr)
    return 0
