"""Marks as the probe would write them."""

from __future__ import annotations

from typing import Any

import pytest

from hotlap.probe import marks
from hotlap.probe.marks import Kind

MS = 1_000_000


TAPE_START = 2_000 * MS  # the origin is before the process: imports come first


class Tape:
    """Writes marks as the probe would. Times are milliseconds; `words` is (kind, ms), a number is a gap."""

    def __init__(self) -> None:
        self.at = TAPE_START
        self.raw: list[int] = []

    def play(self, *words: Any) -> Tape:
        for word in words:
            if isinstance(word, tuple):
                kind, *inside = word
                self.enter(kind).play(*inside).leave(kind)
            else:
                self.at += round(word * MS)
        return self

    def enter(self, kind: Kind) -> Tape:
        self.raw.append(self.at << 8 | marks.enter(kind))
        return self

    def leave(self, kind: Kind) -> Tape:
        self.raw.append(self.at << 8 | marks.leave(kind))
        return self

    def fact(self, code: int, value: int) -> Tape:
        self.raw.append(value << 8 | code)
        return self

    def moment(self, code: int) -> Tape:
        return self.fact(code, self.at)

    def batch(
        self, ms: float = 1, samples: int | None = 32, loader: int = 0, tokens: int | None = None
    ) -> Tape:
        self.play((Kind.DATA, ms)).fact(marks.LOADER_ID, loader)
        if samples is not None:
            self.fact(marks.SAMPLES, samples)
        if tokens is not None:
            self.fact(marks.TOKENS, tokens).fact(marks.PADDED, 5)
        return self

    def step(self, ms: float = 1, optimizer: int = 0) -> Tape:
        return self.play((Kind.STEP, ms)).fact(marks.OPTIMIZER_ID, optimizer)

    def usual(self, count: int = 1, optimizer: int = 0) -> Tape:
        """Steps of 10 ms: data 2, forward 3 with the loss, backward 4, optimizer 1."""
        for _ in range(count):
            self.batch(2).play((Kind.FORWARD, 2), 1, (Kind.BACKWARD, 4)).step(1, optimizer)
        return self


@pytest.fixture(scope="session")
def new_tape() -> type[Tape]:
    return Tape
