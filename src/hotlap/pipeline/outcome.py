"""The view of what a folder of `hotlap tune` or `hotlap compare` holds; reads, and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts import codec
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Tuning
from hotlap.report.tuned import Searched, tuning_view

TUNING, COMPARISON, LEDGER = "tuning.json", "comparison.json", "ledger.jsonl"


def outcome_of(folder: Path) -> Mapping[str, Any] | None:
    """None where the folder is of neither."""
    if (folder / TUNING).is_file():
        return view_of_search(folder)
    path = folder / COMPARISON
    if not path.is_file():
        return None
    found: Mapping[str, Any] = codec.read_json(path, Mapping[str, Any])
    return found


def view_of_search(folder: Path) -> dict[str, Any]:
    """All that the folder of a search holds of it."""
    searched = Searched(
        tuning=codec.read_json(folder / TUNING, Tuning),
        job=codec.read_json(folder / "job.json", Job),
        host=codec.read_json(folder / "host.json", Host),
        folder=str(folder),
        trials=trials_of(folder / LEDGER),
    )
    return tuning_view(searched)


def trials_of(path: Path) -> list[Trial]:
    """The trials of a ledger. A line that a kill has torn is left out: the search goes on without it too."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    found = []
    for line in lines:
        try:
            found.append(codec.from_plain(Trial, codec.parse_json(line), path.name))
        except (ValueError, FactError):
            continue
    return found
