"""`--export`: which trackers and dashboards get the figures of a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.errors import visible

if TYPE_CHECKING:
    from hotlap.export.sending import Target

_DRAWN = ("profile", "tuning", "comparison")  # kinds of views that a renderer draws


def add_export_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        metavar="TOOLS",
        help="also send the figures to mlflow, otel, prometheus, tensorboard or wandb: TOOL[=WHERE],...",
    )


def wanted_exports(options: argparse.Namespace) -> tuple[Target, ...]:
    """What is unknown or not installed is refused before the job runs."""
    if options.export is None:
        return ()
    from hotlap.export.sending import read_targets

    return read_targets(options.export)


def export(view: Mapping[str, Any], folder: Path, targets: tuple[Target, ...]) -> None:
    """After the job: whatever goes wrong is reported, and changes neither the run nor the exit code."""
    if not targets:
        return
    from hotlap.probe import boundary

    if boundary.attempt(_export, view, folder, targets) is None:
        _say(f"not exported: {boundary.faults[-1]}")


def _export(view: Mapping[str, Any], folder: Path, targets: tuple[Target, ...]) -> bool:
    from hotlap.export.parcel import parcel_of
    from hotlap.export.sending import send
    from hotlap.pipeline import REPORT
    from hotlap.report.renderers.markdown import Markdown

    summary = Markdown().render(view) if view.get("kind", "profile") in _DRAWN else ""
    page = folder / REPORT
    send(parcel_of(view, folder, summary=summary, report=str(page) if page.is_file() else ""), targets, _say)
    return True


def _say(line: str) -> None:
    print(visible(f"hotlap: {line}"), file=sys.stderr, flush=True)
