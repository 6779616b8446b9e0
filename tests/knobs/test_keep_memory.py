"""Freed memory stays: blocks that are freed and asked for again cost no new pages."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from hotlap.knobs.keep_memory import KeepMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
SCRIPT = """
import resource
import torch
from hotlap.knobs.keep_memory import KeepMemory

def new_pages():  # of a block that is filled, freed, and filled again
    for _ in range(4):  # the gap that stays may need to be found
        torch.ones(2**24)  # 64 MiB: above what glibc keeps by itself
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

found = [new_pages()]
undo = KeepMemory().apply(None, True)
found.append(new_pages())
undo()
found.append(new_pages())
print(*found)
"""


def test_a_block_that_was_freed_is_used_again_until_it_is_undone():
    """In a process of its own: what others have allocated lies between blocks."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, meanwhile, after = map(int, done.stdout.split())
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
