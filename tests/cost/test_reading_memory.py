from __future__ import annotations

from types import SimpleNamespace

from hotlap.cost.reading import fit, free_bytes

GIB = 2**30


def test_a_margin_stays_free():
    assert fit(1000, GIB // 1000 - 1024, 2 * GIB).fits
    assert not fit(1000, int(1.6 * GIB / 1000), 2 * GIB).fits


def test_many_small_items_have_their_overhead():
    assert fit(10_000_000, 4, 5 * GIB).needed > 4 * GIB


def seen(*gauges):
    return SimpleNamespace(
        gauges=[SimpleNamespace(ram_free=free, rss=rss, tree_rss=tree) for free, rss, tree in gauges]
    )


def test_free_is_the_tightest_look():
    host = SimpleNamespace(ram_free_bytes=64 * GIB)
    assert free_bytes(seen((9 * GIB, GIB, None), (7 * GIB, GIB, None)), host) == 7 * GIB


def test_where_nobody_looked_the_jobs_own_peak_is_taken_off():
    host = SimpleNamespace(ram_free_bytes=10 * GIB)
    assert free_bytes(seen((None, GIB, None), (None, 2 * GIB, 3 * GIB)), host) == 7 * GIB
    assert free_bytes(seen((None, 20 * GIB, None)), host) == 0
    assert free_bytes(seen(), host) == 10 * GIB
