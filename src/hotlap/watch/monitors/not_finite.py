"""Losses and gradients that are not finite."""

from __future__ import annotations

import math

from hotlap.watch.word import Gravity, Word

_FORGIVEN_AFTER = 100  # finite values in a row: the run has got over it


class NotFinite:
    id = "not-finite"

    def __init__(self) -> None:
        self._seen = self._bad = self._good_in_a_row = 0
        self._what = ""
        self._since: int | None = None

    def add(self, step: int, what: str, value: float) -> None:
        """`what` is `loss` or `gradient`."""
        self._seen += 1
        if math.isfinite(value):
            self._good_in_a_row += 1
            return
        if self._since is None or self._good_in_a_row >= _FORGIVEN_AFTER:
            self._since, self._what = step, what
        self._bad += 1
        self._good_in_a_row = 0

    def word(self) -> Word:
        figures = {"looks": float(self._seen), "bad": float(self._bad), "what": self._what or None}
        if self._since is None:
            return Word("finite", figures=figures)
        if self._good_in_a_row >= _FORGIVEN_AFTER:
            return Word("recovered", Gravity.OK, self._since, figures)
        return Word("not-finite", Gravity.CRITICAL, self._since, figures)
