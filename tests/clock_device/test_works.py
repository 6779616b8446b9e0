"""The clock device itself: torch computes on it as on the CPU, and its time is what was planted."""

from __future__ import annotations

from pathlib import Path

import pytest

MS = 1_000_000


@pytest.fixture(scope="module")
def seen(on_clock):
    return on_clock(Path(__file__).with_name("works.py"))


def test_torch_knows_it_as_its_accelerator(seen):
    assert seen["accelerator"] == "clock"
    assert seen["devices"] == ["clock:0", "clock:1"]


def test_models_train_on_it_as_on_the_cpu(seen):
    on_cpu, on_clock = seen["same"]
    for one, other in zip(on_cpu, on_clock, strict=True):
        assert one == pytest.approx(other, rel=1e-5)


def test_an_operator_returns_at_once_and_takes_what_was_planted(seen):
    times = seen["times"]
    assert times["queued"] < MS and not times["done"]
    assert times["waited"] == pytest.approx(5 * MS, rel=1e-3)
    assert times["elapsed"] == pytest.approx(5.0)


def test_only_a_copy_from_pinned_memory_can_leave_the_host_alone(seen):
    times = seen["times"]
    assert times["pageable"] == 8000 and times["asynchronous"] == 0 and times["pinned"] == 8000
    assert times["counts"]["copy"] == 2 and times["counts"]["device"] == 1


def test_streams_run_side_by_side_until_one_waits(seen):
    assert seen["streams"] == {"beside": 5 * MS, "after": 10 * MS}


def test_memory_is_counted_and_ends(seen):
    memory = seen["memory"]
    assert memory["grown"] == 1 << 20 and memory["left"] == 0 and memory["total"] == 8 << 20
    assert "out of memory" in memory["error"]


def test_a_dataloader_pins_for_it(seen):
    assert seen["pinning"] == [True, True]
