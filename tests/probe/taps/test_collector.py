"""Full collections of garbage are marked, young ones are not."""

from __future__ import annotations

import gc
import subprocess
import sys

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


INTERRUPTED = """
import ctypes, functools, gc, os, signal, sys, tempfile
from pathlib import Path
from hotlap.probe.session import Session
from hotlap.probe.taps import collector

class Own(Exception): pass
raised, seen = [], []
def handle(*_):
    raised.append(Own())
    raise raised[-1]
signal.signal(signal.SIGUSR1, handle)
collector.install(Session(Path(tempfile.mkdtemp()), 0))
kill = ctypes.CDLL(None).kill  # from C, as a signal that comes while the collector works: no bytecode is run before
kill.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.py_object, ctypes.py_object)
arrives = functools.partial(kill, os.getpid(), int(signal.SIGUSR1))
gc.disable()
for _ in range(5):
    gc.callbacks.insert(0, arrives)
    try:
        gc.collect()
        for _ in range(3): pass
    except Own as error:
        seen.append(error)
    finally:
        gc.callbacks.remove(arrives)
print(len(raised) >= 5, len(seen) == 5, all(error in raised for error in seen), len(gc.callbacks))
"""


def test_what_a_signal_handler_raises_during_a_collection_reaches_the_script():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("True True True 1\n", "")
