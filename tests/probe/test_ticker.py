"""The ticker calls back in the main thread, wherever that is, and shortens no wait."""

from __future__ import annotations

import collections
import os
import select
import signal
import sys
import threading
import time

import pytest

from hotlap.probe.ticker import Ticker

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the ticker is for Linux; others sample from beside"
)


@pytest.fixture
def ticks():
    """Lines that were met, and a ticker that is stopped and leaves no handler behind."""
    met = collections.Counter()
    ticker = Ticker(lambda frame: met.update([(frame.f_code.co_name, threading.current_thread().name)]))
    yield met, ticker
    ticker.stop()
    signal.signal(signal.SIGURG, signal.SIG_DFL)


def compute(rounds):
    return sum(number * number for number in range(rounds))


def until(condition):
    ended = time.monotonic() + 20
    while not condition() and time.monotonic() < ended:
        compute(200)
    assert condition()


def test_it_calls_back_in_the_main_thread(ticks):
    met, ticker = ticks
    ticker.start(0.002)
    assert ticker.ticks
    until(lambda: sum(met.values()) > 20)
    assert {thread for _, thread in met} == {"MainThread"}


def test_python_code_is_met_although_it_never_lets_go_of_the_lock(ticks):
    """Time spent in `compute` is met there and not where the loop sleeps for a moment, which releases the lock."""
    met, ticker = ticks
    ticker.start(0.002)
    spent = {"compute": 0.0, "sleep": 0.0}
    ended = time.monotonic() + 20
    while sum(met.values()) < 150 and time.monotonic() < ended:
        began = time.perf_counter()
        compute(4000)
        between = time.perf_counter()
        time.sleep(0)
        spent["compute"] += between - began
        spent["sleep"] += time.perf_counter() - between
    share = sum(count for (name, _), count in met.items() if name in ("compute", "<genexpr>")) / sum(
        met.values()
    )
    assert share > 0.8 * spent["compute"] / sum(spent.values())


def test_a_script_that_waits_for_the_system_waits_as_long_as_before(ticks):
    met, ticker = ticks
    ticker.start(0.002)
    ready, silent = os.pipe(), time.monotonic()
    try:
        select.select([ready[0]], [], [], 0.2)
        os.write(ready[1], b"x")
        assert os.read(ready[0], 1) == b"x"
    finally:
        os.close(ready[0])
        os.close(ready[1])
    assert time.monotonic() - silent >= 0.2
    until(lambda: bool(met))


def test_it_stops_and_starts_again(ticks):
    met, ticker = ticks
    ticker.start(0.002)
    until(lambda: bool(met))
    ticker.stop()
    before = sum(met.values())
    compute(200_000)
    assert sum(met.values()) == before
    ticker.start(0.002)
    until(lambda: sum(met.values()) > before)


def test_a_script_that_uses_the_signal_keeps_it(ticks):
    _, ticker = ticks
    kept = signal.signal(signal.SIGURG, lambda *_: None)
    mine = signal.getsignal(signal.SIGURG)
    ticker.start(0.002)
    assert not ticker.ticks
    assert signal.getsignal(signal.SIGURG) is mine
    signal.signal(signal.SIGURG, kept)


def test_it_cannot_start_from_another_thread(ticks):
    _, ticker = ticks
    thread = threading.Thread(target=ticker.start, args=(0.002,))
    thread.start()
    thread.join()
    assert not ticker.ticks


def test_a_fork_takes_no_tick_along(ticks):
    met, ticker = ticks
    ticker.start(0.002)
    until(lambda: bool(met))
    child = os.fork()
    if child == 0:
        ticker.forget()
        before = sum(met.values())
        compute(300_000)
        os._exit(sum(met.values()) != before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
