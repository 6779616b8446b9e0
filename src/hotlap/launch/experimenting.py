"""In the training process: experiments after the window. What they need is imported only then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.probe.feed import Feed
from hotlap.probe.session import Session


class DeferredExperimentPhase:
    """The phase of a session; over at once where it cannot begin. `base` are the settings that the job runs under,
    `home` is the folder that it began in."""

    steps = 1 << 60

    def __init__(self, session: Session, feed: Feed, base: Mapping[str, Any], home: str = "") -> None:
        self._session, self._feed, self._base, self._home = session, feed, base, home
        self._phase: Any = None

    @property
    def over(self) -> bool:
        return self._phase is None or self._phase.over

    def begin(self) -> None:
        from hotlap.plan.catalogue import all_knobs
        from hotlap.seams.experiments import ExperimentPhase, Switches

        knobs = all_knobs()
        phase = ExperimentPhase(self._session, self._feed, Switches(self._base, knobs, self._home), knobs)
        phase.begin()
        self._phase = phase

    def step_made(self) -> None:
        if self._phase is not None:
            self._phase.step_made()

    def end(self) -> None:
        if self._phase is not None:
            self._phase.end()
