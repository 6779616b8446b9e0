"""What a profile stores of the user's slow lines and of the changes that mend them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hotlap.diagnose.rewrites import recognised
from hotlap.diagnose.unmatched import unmatched
from hotlap.facts import codec
from hotlap.facts.experiment import Experiments
from hotlap.facts.rewrite import Recognition
from hotlap.facts.timeline import Timeline
from hotlap.probe import boundary

REWRITES = "rewrites.json"


def keep_rewrites(
    run: Path, timelines: Sequence[Timeline], folder: str, experiments: Experiments | None
) -> Recognition:
    """What is recognised now, into the run folder: the source may be another one later."""
    patterns = boundary.attempt(recognised, timelines, folder, experiments) or ()
    others = boundary.attempt(unmatched, timelines, folder, patterns) or ()
    found = Recognition(patterns, others)
    if found.found or found.others:
        codec.write_json(run / REWRITES, found)
    return found


def stored_rewrites(run: Path) -> Recognition | None:
    """None where nothing was recognised."""
    path = run / REWRITES
    found: Recognition | None = codec.read_json(path, Recognition) if path.exists() else None
    return found
