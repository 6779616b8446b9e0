"""The document of a view that is no profile: of a search for a plan, of a comparison, of a check against a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hotlap.report import checked, comparison, tuned
from hotlap.report import tuned as tuned_document
from hotlap.report.document import Document
from hotlap.report.locale import Phrases

_DOCUMENTS: Mapping[str, Callable[[Mapping[str, Any], Phrases], Document]] = {
    tuned.KIND: tuned_document.document,
    comparison.KIND: comparison.document,
    checked.KIND: checked.document,
}


def document_of(view: Mapping[str, Any], say: Phrases) -> Document | None:
    """None for a profile, which has a report of its own form."""
    return _DOCUMENTS[view["kind"]](view, say) if "kind" in view else None
