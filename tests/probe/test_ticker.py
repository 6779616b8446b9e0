"""The ticker calls back in the main thread, wherever that is, and shortens no wait."""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import pytest

from hotlap.probe import boundary
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
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL


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


@pytest.mark.alone
def test_python_code_is_met_although_it_never_lets_go_of_the_lock(ticks):
    """Time spent in `compute` is met there and not where the loop sleeps for a moment, which releases the lock."""
    met, ticker = ticks
    ticker.start(0.002)
    chance, spent = random.Random(0), {"compute": 0.0, "sleep": 0.0}
    ended = time.monotonic() + 20
    while sum(met.values()) < 500 and time.monotonic() < ended:
        began = time.perf_counter()
        compute(chance.randrange(2000, 20000))  # a loop of one period falls into step with the ticks
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
    ticker.stop()
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
        os._exit(sum(met.values()) != before or signal.getsignal(signal.SIGURG) is not signal.SIG_DFL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ticker.ticks


def test_a_fork_from_another_thread_leaves_nothing_of_it_behind(ticks):
    """Only the main thread may put the signal back; in the child the thread that forked is the main one."""
    met, ticker = ticks
    ticker.start(0.002)
    until(lambda: bool(met))
    codes = []

    def fork():
        ticker.stop()
        child = os.fork()
        if child == 0:
            ticker.forget()
            os._exit(signal.getsignal(signal.SIGURG) is not signal.SIG_DFL)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert codes == [0]
    until(lambda: signal.getsignal(signal.SIGURG) is signal.SIG_DFL)


def test_stopping_gives_the_signal_back(ticks):
    _, ticker = ticks
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    for _ in range(3):
        ticker.start(0.001)
        assert signal.getsignal(signal.SIGURG) is not signal.SIG_DFL
        compute(3_000)
        ticker.stop()
        assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGURG)  # which ends nothing: it is ignored again


def test_stopped_from_another_thread_it_gives_the_signal_back_soon(ticks):
    met, ticker = ticks
    ticker.start(0.002)
    thread = threading.Thread(target=ticker.stop)
    thread.start()
    thread.join()
    assert not ticker.ticks
    seen = sum(met.values())
    until(lambda: signal.getsignal(signal.SIGURG) is signal.SIG_DFL)
    assert sum(met.values()) == seen
    assert not ticker._has_timer
    ticker.start(0.002)
    until(lambda: sum(met.values()) > seen)


def test_a_session_that_goes_leaves_the_signal_as_it_was(session):
    session.start()
    assert session.sampler._ticker.ticks
    session.detach()
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL


@pytest.mark.parametrize("way", ["python", "c"])
def test_whoever_takes_the_signal_later_is_not_called_by_our_timer(ticks, way, tmp_path):
    met, ticker = ticks
    ticker.start(0.002)
    until(lambda: bool(met))
    assert not ticker.yields()
    theirs = []
    with (tmp_path / "dump").open("w") as file:
        if way == "python":
            signal.signal(signal.SIGURG, lambda *_: theirs.append(1))
        else:
            faulthandler.register(signal.SIGURG, file)  # which Python's own table does not show
        assert ticker.yields() and not ticker.ticks
        before = len(theirs), (tmp_path / "dump").stat().st_size
        compute(200_000)
        assert (len(theirs), (tmp_path / "dump").stat().st_size) == before
        os.kill(os.getpid(), signal.SIGURG)
        until(lambda: (len(theirs), (tmp_path / "dump").stat().st_size) > before)
        faulthandler.unregister(signal.SIGURG)
    signal.signal(signal.SIGURG, signal.SIG_DFL)


def test_an_event_loop_that_listens_to_signals_is_not_woken_by_ours(ticks):
    _, ticker = ticks
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    with reader, writer:
        ticker.start(0.002)
        signal.set_wakeup_fd(writer.fileno())  # as asyncio does in add_signal_handler
        try:
            until(lambda: not ticker.ticks)
            compute(200_000)
            assert len(reader.recv(4096)) <= 2, "the first tick is the one that sees it"
            ticker.start(0.002)
            assert not ticker.ticks
        finally:
            assert signal.set_wakeup_fd(-1) == writer.fileno(), "it is left as the script has set it"


def test_a_new_program_in_the_same_process_gets_no_tick(tmp_path):
    """Were the timer kept across exec, its signal would meet a program that knows nothing of it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nfrom hotlap.probe.ticker import Ticker\nTicker(lambda frame: None).start(0.001)\n"
        "os.execv(sys.executable, [sys.executable, '-c', 'import signal, time; time.sleep(0.05);"
        " print(signal.getsignal(signal.SIGURG) is signal.SIG_DFL, signal.sigpending())'])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "True set()"), done.stderr


def test_a_started_program_is_not_disturbed(ticks):
    _, ticker = ticks
    ticker.start(0.001)
    done = subprocess.run(["sleep", "0.05"], timeout=60)
    assert done.returncode == 0


def test_where_no_timer_can_be_made_nothing_is_left_behind(ticks, monkeypatch):
    class Refuses:
        def timer_create(self, *_):
            return -1

    _, ticker = ticks
    monkeypatch.setattr("hotlap.probe.ticker._libc", Refuses)
    ticker.start(0.002)
    assert not ticker.ticks
    assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL


def test_an_interrupt_reaches_the_script_although_a_tick_is_under_way(ticks):
    _, ticker = ticks
    once = iter([signal.SIGINT])
    ticker._call = lambda frame: [signal.raise_signal(each) for each in once]
    ended = time.monotonic() + 20
    with pytest.raises(KeyboardInterrupt):
        ticker.start(0.002)
        while time.monotonic() < ended:
            compute(200)


def test_a_fault_of_the_call_is_written_down_and_a_lack_of_stack_is_not(ticks):
    met, ticker = ticks
    calls = iter((ValueError("planted"), RecursionError()))

    def fails(_):
        met.update(["call"])
        raise next(calls, RecursionError())

    ticker._call = fails
    ticker.start(0.002)
    until(lambda: met["call"] > 3)
    ticker.stop()
    faults = [*boundary.faults]
    boundary.faults.clear()
    assert len(faults) == 1 and "planted" in faults[0]


def dive(depth, met):
    """Spends a moment that deep, and returns the ticks that it met."""
    if depth:
        return dive(depth - 1, met)
    before, ended = sum(met.values()), time.monotonic() + 0.03
    while time.monotonic() < ended:
        pass
    return sum(met.values()) - before


def deepest(met):
    for depth in range(sys.getrecursionlimit(), 0, -1):
        with contextlib.suppress(RecursionError):
            dive(depth, met)
            return depth
    return 0


def test_a_script_close_to_the_end_of_its_stack_gets_there_as_before(ticks):
    """The ticker needs two calls to notice that there is no room for more."""
    met, ticker = ticks
    depth = deepest(met)
    ticker.start(0.002)
    for left in range(3, 12):
        dive(depth - left, met)
    assert dive(depth // 2, met) > 0
    ticker.stop()
    assert not boundary.faults


@pytest.mark.skipif(find_spec("_xxsubinterpreters") is None, reason="this Python hides them elsewhere")
def test_a_second_interpreter_is_left_alone(tmp_path):
    """In a process of its own: with a second interpreter Python no longer says who holds its lock."""
    inside = (
        "from hotlap.probe.ticker import Ticker; ticker = Ticker(print); ticker.start(0.01);"
        " assert not ticker.ticks; ticker.stop()"
    )
    script = tmp_path / "script.py"
    script.write_text(f"import _xxsubinterpreters as them\nthem.run_string(them.create(), {inside!r})\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
