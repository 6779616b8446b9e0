"""Jobs with a known answer: plain training scripts, each slow for reasons that were planted, or for none.

A job is named `family-cause-style-size-threads`. It is sealed if the first hex digit of sha256(name) is 0 to 7: such
jobs are never looked at while rules are worked on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from truth_jobs.beside import CAUSES
from truth_jobs.catalogue import HEALTHY_JOBS, PAIRS, PLANTED
from truth_jobs.causes import KEPT_MEMORY, Cause
from truth_jobs.render import FRAMEWORKS, Parts, Script, blank, families, render

HEALTHY = "healthy"
SIZES = ("small", "medium", "large")
BF16 = 'torch.set_autocast_enabled("cpu", torch.cpu._is_avx512_bf16_supported())'  # as a careful user has it
WIDER = {
    "metric": 3,
    "autoencoder": 3,
    "gan": 3,
    "table": 2,
    "accumulated": 2,
}  # healthy: a larger batch gains nothing
ALONE, FIRST, SECOND = 1.5, 2.5, 0.5  # weight of a cause that is alone, and of two


@dataclass(frozen=True)
class Job:
    """One script with its answer. `causes` come in order of weight; none: healthy."""

    family: str
    causes: tuple[str, ...]
    style: str
    size: int
    threads: int

    @property
    def name(self) -> str:
        what = "+".join(self.causes) or HEALTHY
        return f"{self.family}-{what}-{self.style}-{SIZES[self.size]}-t{self.threads}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def sealed(self) -> bool:
        return self.digest[0] in "01234567"

    @property
    def framework(self) -> str:
        return FRAMEWORKS.get(self.style, "raw")

    @property
    def first(self) -> Cause | None:
        return CAUSES[self.causes[0]] if self.causes else None

    @property
    def accepted(self) -> frozenset[str]:
        """Verdicts that are right; more than one where two names are both right."""
        if not self.first:
            return frozenset({HEALTHY})
        loader = "loader" in self.parts().sites
        wider = {each for each in self.first.accept if loader or each != "workers-too-few"}
        return frozenset({self.first.name, *wider})

    @property
    def answer(self) -> str:
        return self.causes[0] if self.causes else HEALTHY

    @property
    def plan(self) -> dict[str, object]:
        """The remedy of the first cause as settings; empty where only the script by hand has it."""
        return dict(self.first.plan) if self.first else {}

    def parts(self, *, without: str = "") -> Parts:
        """The job's slots; `without` one of its causes: mended by hand."""
        weights = (ALONE,) if len(self.causes) == 1 else (FIRST, SECOND)
        parts = blank(families()[self.family], self.style, self.size, int(self.digest[1:3], 16))
        parts.environment = dict(KEPT_MEMORY)
        for place, (cause, weight) in enumerate(zip(self.causes, weights, strict=False)):
            unit, sites = CAUSES[cause], set(parts.sites)
            if cause != without or unit.mend:
                unit.plant(parts, weight)
            if cause == without and unit.mend:
                unit.mend(parts, weight)
            parts.sites = sites if place else parts.sites  # what counts is the place of the first cause
            _settle_marks(parts, "" if place else "  # FIRST")
        if not self.causes:
            parts.add("setup", BF16)
            parts.numbers["batch"] = str(parts.batch * WIDER.get(self.family, 1))
        return parts

    @cached_property
    def script(self) -> Script:
        return render(self.parts())

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Line ranges that are right; empty where the cause has no place."""
        return self.script.places if self.first and self.first.placed else ()

    def mended(self, cause: str) -> Script:
        return render(self.parts(without=cause))

    def facts(self) -> dict[str, object]:
        """What is known about the job, as data."""
        return {
            "name": self.name,
            "causes": list(self.causes),
            "accepted": sorted(self.accepted),
            "places": [list(each) for each in self.places],
            "plan": self.plan,
            "framework": self.framework,
            "size": SIZES[self.size],
            "threads": self.threads,
            "environment": self.parts().environment,
        }


def _settle_marks(parts: Parts, mark: str) -> None:
    for slot, text in parts.slots.items():
        parts.slots[slot] = text.replace("  # PLANT", mark)


def _read(lines: Iterable[tuple[str, str]]) -> Iterable[Job]:
    for causes, words in lines:
        for word in words.split():
            family, style, size, threads = word.split("/")
            names = tuple(causes.split("+")) if causes else ()
            yield Job(family, names, style, int(size), int(threads))


def catalogue() -> list[Job]:
    return list(_read([*PLANTED.items(), *PAIRS.items(), ("", HEALTHY_JOBS)]))
