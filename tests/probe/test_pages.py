"""Pages that a step asks for again and again are counted, and neither those that stay nor those of one step alone."""

from __future__ import annotations

import mmap
import sys
from types import SimpleNamespace

import pytest

from hotlap.probe import pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counted by /proc")
PAGES = 2000


def touched() -> mmap.mmap:
    memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
    for page in range(PAGES):
        memory[page * mmap.PAGESIZE] = 1
    return memory


def counted(step) -> float:
    """What the facts say after a run of such steps; each gets its number."""
    session = SimpleNamespace(step_ends=[], facts={})
    pages.install(session)
    (ends,) = session.step_ends
    number = 0
    going = True
    while going:
        number += 1
        step(number)
        going = ends()
    assert session.facts["page_ns"] > 0
    return session.facts["pages_per_step"]


def test_what_is_given_back_in_every_step_is_counted():
    assert counted(lambda _: touched().close()) == pytest.approx(PAGES, rel=0.2)


def test_what_stays_is_not():
    kept = []
    assert counted(lambda _: kept.append(touched())) < PAGES / 4


def test_what_goes_is_not():
    kept = [touched() for _ in range(30)]
    assert counted(lambda _: kept.pop().close()) < PAGES / 4


def test_what_one_step_asks_for_is_not():
    assert counted(lambda number: touched().close() if number == 12 else None) < PAGES / 4
