"""Offers the process once, as soon as torch is there."""

from __future__ import annotations

from hotlap.ports.target import Process, Seam
from hotlap.seams.fitter import Fitter


def install(fitter: Fitter) -> None:
    fitter.offer(Seam.PROCESS, Process(fitter.patches))
