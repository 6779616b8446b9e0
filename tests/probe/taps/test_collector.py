"""Full collections of garbage are marked, young ones are not."""

from __future__ import annotations

import gc

import pytest

from hotlap.probe.taps import collector


@pytest.fixture(autouse=True)
def tap(session):
    """Nothing is collected but what a test asks for."""
    was_on = gc.isenabled()
    gc.disable()
    collector.install(session)
    yield
    if was_on:
        gc.enable()


def test_a_full_collection_has_a_beginning_and_an_end(written):
    gc.collect()
    (entered, started), (left, ended) = written()
    assert (entered, left) == ("+COLLECT", "-COLLECT")
    assert 0 < started < ended


def test_each_one_is_marked(written):
    for _ in range(3):
        gc.collect()
    assert [name for name, _ in written()] == ["+COLLECT", "-COLLECT"] * 3


def test_young_generations_are_not(written):
    gc.collect(0)
    gc.collect(1)
    assert written() == []


def test_the_script_may_listen_too(written):
    heard = []

    def listen(phase, details):
        heard.append(phase)

    gc.callbacks.append(listen)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(listen)
    assert heard == ["start", "stop"]
    assert len(written()) == 2


def test_detached_it_no_longer_listens(session, written):
    before = len(gc.callbacks)
    session.detach()
    gc.collect()
    assert len(gc.callbacks) == before - 1
    assert written() == []
