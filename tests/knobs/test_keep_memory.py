"""Freed memory stays: blocks that are freed and asked for again cost no new pages."""

from __future__ import annotations

import resource
import sys
from dataclasses import replace

import pytest
import torch

from hotlap.knobs.keep_memory import KeepMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
BLOCK = 64 * 2**20  # above what glibc keeps by itself


def new_pages() -> int:
    """Of a block that is filled, freed, and filled again."""
    torch.ones(BLOCK // 4)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(BLOCK // 4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_a_block_that_was_freed_is_used_again_until_it_is_undone(fit_compute):
    assert new_pages() > 1000
    fitter = fit_compute(keep_memory=True)
    assert new_pages() < 100
    fitter.undo()
    assert new_pages() > 1000


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
