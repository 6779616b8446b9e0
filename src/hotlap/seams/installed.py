"""All seams of a process, in the order in which they are put in place. Imported once torch is there."""

from __future__ import annotations

from hotlap.probe import boundary
from hotlap.seams import distributed, loader, model, optimizer, process, step
from hotlap.seams.fitter import Fitter

# The process first: what its knobs switch must hold before anything is built.
_SEAMS = (process, loader, model, optimizer, distributed, step)


def install(fitter: Fitter) -> None:
    """A seam that fails is left out; what it would have fitted is told as not met."""
    for seam in _SEAMS:
        boundary.attempt(seam.install, fitter)
