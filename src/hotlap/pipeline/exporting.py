"""A view, with its report, to the trackers and dashboards that the user named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.probe import boundary

if TYPE_CHECKING:
    from hotlap.export.sending import Target

_DRAWN = ("profile", "tuning", "comparison")  # kinds of views that a renderer draws


def export(
    view: Mapping[str, Any], folder: Path, targets: Sequence[Target], say: Callable[[str], None]
) -> None:
    """After the job: whatever goes wrong is reported, and changes neither the run nor the exit code."""
    if targets and boundary.attempt(_export, view, folder, targets, say) is None:
        say(f"not exported: {boundary.faults[-1]}")


def _export(
    view: Mapping[str, Any], folder: Path, targets: Sequence[Target], say: Callable[[str], None]
) -> bool:
    from hotlap.export.parcel import parcel_of
    from hotlap.export.sending import send
    from hotlap.pipeline import REPORT
    from hotlap.report.renderers.markdown import Markdown

    summary = Markdown().render(view) if view.get("kind", "profile") in _DRAWN else ""
    page = folder / REPORT
    send(parcel_of(view, folder, summary=summary, report=str(page) if page.is_file() else ""), targets, say)
    return True
