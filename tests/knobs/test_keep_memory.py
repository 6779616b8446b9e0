"""Freed memory stays: blocks that are freed and asked for again cost no new pages."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from hotlap.knobs.keep_memory import KeepMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")


def test_a_block_that_was_freed_is_used_again_until_it_is_undone(new_pages):
    load = "from hotlap.knobs.keep_memory import KeepMemory"
    before, meanwhile, after = new_pages(f"{load}\nundo = KeepMemory().apply(None, True)", "undo()")
    assert meanwhile < 100 < 1000 < min(before, after)


def test_bit_equal(fit_compute, train):
    plain = train()
    fit_compute(keep_memory=True)
    assert train().same_as(plain)


def test_offered_where_the_system_hands_out_pages_in_every_step(compute_host, compute_timeline):
    timeline = compute_timeline()
    assert KeepMemory().settings(compute_host(), timeline) == ()
    churning = replace(timeline, runtime=replace(timeline.runtime, pages=1000.0, page_us=2.0))
    assert KeepMemory().settings(compute_host(), churning) == (True,)
    assert KeepMemory().ceiling(churning, compute_host()) > 0
