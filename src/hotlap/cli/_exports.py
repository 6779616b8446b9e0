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
    if targets:
        from hotlap.pipeline.exporting import export as send

        send(view, folder, targets, _say)


def _say(line: str) -> None:
    print(visible(f"hotlap: {line}"), file=sys.stderr, flush=True)
