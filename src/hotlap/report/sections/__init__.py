"""The sections of a report in their order, each built from the view in one language.

A section of which nothing was measured is None and is left out; renderers draw what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hotlap.report.document import Section
from hotlap.report.locale import Phrases
from hotlap.report.sections import experiments, machine, time
from hotlap.report.sections import experiments as after
from hotlap.report.sections import machine as input
from hotlap.report.sections import time as code

Build = Callable[[Mapping[str, Any], Phrases], Section | None]

IN_ORDER: tuple[Build, ...] = (
    time.stages,
    experiments.tried,
    experiments.not_tried,
    after.free_input,
    time.ranks,
    code.lines,
    code.syncs,
    after.operators,
    after.compute,
    input.workers,
    input.loaders,
    time.occasional,
    machine.memory,
    machine.cpu,
    time.warmup,
)


def build(view: Mapping[str, Any], say: Phrases) -> list[Section]:
    """All sections that have something to say."""
    return [section for make in IN_ORDER if (section := make(view, say)) is not None]
