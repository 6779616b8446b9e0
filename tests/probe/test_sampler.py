"""The stack sampler names the lines that hold the time, and gets out of the way of forks."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

from hotlap.probe import boundary
from hotlap.probe.ring import Ring
from hotlap.probe.sampler import LINE_BITS, Sampler
from hotlap.timeline.gather import read_integers

UNTIL_S = 20  # a limit that turns a hang into a failure


@pytest.fixture
def sampler(tmp_path):
    marks = Ring(tmp_path / "1.marks")
    made = Sampler(tmp_path / "1.samples", time.perf_counter_ns(), marks, lambda: None)
    yield made
    made.stop()


def spend(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        json.dumps(list(range(50)))


def lines_of(sampler):
    """Samples by (file's name, line, function, callee)."""
    sampler.stop()
    table = sampler.facts()["lines"]
    samples = read_integers(sampler._ring.path)
    rows = [table[sample & ((1 << LINE_BITS) - 1)] for sample in samples]
    return Counter((Path(row[0]).name, *row[1:4]) for row in rows)


def taken(sampler):
    return len(sampler._ring.buffer) + sampler._ring.count


def wait_for(condition):
    end = time.monotonic() + UNTIL_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.alone
def test_the_line_of_the_users_code_that_holds_the_time_is_named_with_what_it_calls(sampler):
    sampler.start(threading.get_ident())
    while taken(sampler) < 50:
        spend(0.1)
    found = lines_of(sampler)
    dumping = ("test_sampler.py", spend.__code__.co_firstlineno + 3, "spend")
    held = sum(count for line, count in found.items() if line[:3] == dumping)
    assert held > sum(found.values()) / 2
    assert (*dumping, "dumps") in found


def test_a_waiting_line_is_seen_too(sampler):
    sampler.start(threading.get_ident())
    while taken(sampler) < 10:
        time.sleep(0.1)
    found = lines_of(sampler)
    function = test_a_waiting_line_is_seen_too
    assert max(found, key=found.get)[:3] == (
        "test_sampler.py",
        function.__code__.co_firstlineno + 3,
        function.__qualname__,
    )


def test_it_watches_the_thread_it_is_told_to(sampler):
    stop = threading.Event()

    def lurk():
        stop.wait()

    other = threading.Thread(target=lurk)
    other.start()
    sampler.start(other.ident)
    wait_for(lambda: taken(sampler) > 5)
    stop.set()
    other.join()
    assert {function for _, _, function, _ in lines_of(sampler)} == {lurk.__qualname__}


def test_equal_functions_of_two_files_are_two_lines(sampler, tmp_path):
    text = "def wait():\n    import time\n    time.sleep(0.1)\n"
    for name in ("one.py", "two.py"):
        space: dict = {}
        exec(compile(text, str(tmp_path / name), "exec"), space)
        sampler.start(threading.get_ident())
        before = taken(sampler)
        while taken(sampler) < before + 3:
            space["wait"]()
    assert {file for file, _, function, _ in lines_of(sampler) if function == "wait"} == {"one.py", "two.py"}


def test_marks_and_samples_are_on_disk_soon(sampler):
    sampler.start(threading.get_ident())
    sampler._marks.append(7)
    wait_for(lambda: list(read_integers(sampler._marks.path)) == [7])
    wait_for(lambda: len(read_integers(sampler._ring.path)) > 0)


def test_while_it_writes_its_facts_no_line_is_counted(tmp_path):
    """What kept looks from happening was the sampler itself: whatever runs afterwards did not take that time."""
    origin, wrote = time.perf_counter_ns(), []

    def write_facts():
        began = time.perf_counter_ns() - origin
        time.sleep(0.6)
        wrote.append((began // 1000, (time.perf_counter_ns() - origin) // 1000))

    own = Sampler(tmp_path / "1.samples", origin, Ring(tmp_path / "1.marks"), write_facts)
    own.start(threading.get_ident())
    spend(1.2)
    wait_for(lambda: wrote)
    before = taken(own)
    wait_for(lambda: taken(own) > before + 3)
    own.stop()
    own.facts()
    began, ended = wrote[0]
    moments = [sample >> LINE_BITS for sample in read_integers(own._ring.path)]
    assert any(moment < began for moment in moments) and any(moment > ended for moment in moments)
    assert not [moment for moment in moments if began < moment < ended]


def test_it_can_be_stopped_and_started_again(sampler):
    for _ in range(3):
        sampler.start(threading.get_ident())
        assert not sampler.idle
        before, used = taken(sampler), sampler.facts()["cpu_ns"]
        while taken(sampler) == before:
            spend(0.05)
        sampler.stop()
        assert sampler.idle
        assert all(thread.name != "hotlap" for thread in threading.enumerate())
        assert sampler.facts()["cpu_ns"] > used, "what earlier threads used is kept"


def test_more_lines_than_it_can_hold_are_not_put_under_the_name_of_another(sampler, monkeypatch):
    monkeypatch.setattr("hotlap.probe.sampler._MOST_LINES", 1)
    sampler._line_of(sys._getframe())
    sampler.start(threading.get_ident())
    wait_for(lambda: taken(sampler))
    sampler.stop()
    assert len(sampler.facts()["lines"]) == 1
    rows = {sample & ((1 << LINE_BITS) - 1) for sample in read_integers(sampler._ring.path)}
    assert rows == {(1 << LINE_BITS) - 1}, "a row that is not in the table: its samples count to no line"


@pytest.mark.alone
@pytest.mark.parametrize("longest", [40_000, pytest.param(2_000, marks=pytest.mark.alone)])
def test_python_code_is_met_although_it_never_lets_go_of_the_lock(sampler, longest):
    """Stretches of half a millisecond, and of fifty microseconds, beside a call that releases the lock: most of their
    time is met there. A machine whose cores wake slowly for a while misses short ones: three tries."""
    assert any(_meets_python_code(sampler, longest) for _ in range(3))


def _meets_python_code(sampler, longest):
    begun = taken(sampler)
    before = lines_of(sampler) if begun else Counter()
    spent = {"compute": 0.0, "release": 0.0}
    letting_go = bytes(20_000)
    chance = random.Random(0)
    sampler.start(threading.get_ident())
    while taken(sampler) < begun + 300:
        began = time.perf_counter()
        sum(number * number for number in range(chance.randrange(longest // 10, longest)))
        between = time.perf_counter()
        zlib.crc32(letting_go)
        spent["compute"] += between - began
        spent["release"] += time.perf_counter() - between
    met = {key: count - before.get(key, 0) for key, count in lines_of(sampler).items()}
    own = {
        key: count for key, count in met.items() if "range(chance" in _text(key) or "sum(number" in _text(key)
    }
    return sum(own.values()) / sum(met.values()) > 0.6 * spent["compute"] / sum(spent.values())


def _text(key):
    file, line = key[0], key[1]
    here = Path(__file__)
    return here.read_text().splitlines()[line - 1] if file == here.name else ""


def test_the_switch_interval_is_the_script_s_own_again(sampler):
    before = sys.getswitchinterval()
    sampler.start(threading.get_ident())
    wait_for(lambda: taken(sampler) > 5)
    sampler.stop()
    assert sys.getswitchinterval() == before


def test_a_deep_stack_of_libraries_is_no_fault(sampler):
    def dive(depth):
        return dive(depth - 1) if depth else wait_for(lambda: taken(sampler) > 3)

    sampler.start(threading.get_ident())
    dive(300)
    assert sum(lines_of(sampler).values()) > 0


def test_marks_are_written_though_forks_stop_it_sooner_than_it_would_write(sampler):
    marks = sampler._marks
    end = time.monotonic() + UNTIL_S
    while not marks.count:
        assert time.monotonic() < end, "an observer would never see a step"
        marks.append(1)
        sampler.start(threading.get_ident())
        time.sleep(0.1)
        sampler.stop()


def test_a_sample_inside_of_hotlap_ends_where_the_script_has_called_it(sampler):
    """Wrappers of the probe stand between the script and torch: a table of the user's names none of them."""
    rows = []

    def met():
        inside = sys._getframe().f_back
        assert sampler._user.is_probe(inside.f_code)
        rows.append(sampler._table[sampler._line_of(inside)])

    boundary.attempt(met)
    here = "test_a_sample_inside_of_hotlap_ends_where_the_script_has_called_it"
    assert [row[2:] for row in rows] == [[here, "", f"test_sampler.{here}"]]


@pytest.mark.alone
def test_threads_that_only_wait_leave_lines_of_python_their_share(sampler):
    """A progress bar's monitor, a queue's feeder: the thread that samples gets the lock promptly all the same."""
    over = threading.Event()
    for _ in range(2):
        threading.Thread(target=over.wait, daemon=True).start()
    spent = {"compute": 0.0, "release": 0.0}
    letting_go = bytes(20_000)
    sampler.start(threading.get_ident())
    while taken(sampler) < 200:
        began = time.perf_counter()
        sum(number * number for number in range(20_000))
        between = time.perf_counter()
        zlib.crc32(letting_go)
        spent["compute"] += between - began
        spent["release"] += time.perf_counter() - between
    over.set()
    met = lines_of(sampler)
    own = {key: count for key, count in met.items() if "sum(number" in _text(key)}
    assert sum(own.values()) / sum(met.values()) > 0.6 * spent["compute"] / sum(spent.values())


FRAMES_THAT_GO = """
import gc, sys, threading, time
from pathlib import Path
from hotlap.probe import boundary, sampler
from hotlap.probe.ring import Ring

sampler._FIRST_INTERVAL_S = sampler._LATER_INTERVAL_S = 0.006
watcher = sampler.Sampler(Path("1.samples"), time.perf_counter_ns(), Ring(Path("1.marks")), lambda: None)
gc.callbacks.append(lambda *_: time.sleep(0.0005) if threading.current_thread().name == "hotlap" else None)
gc.set_threshold(5)
text = "def deep(depth, {0}):\\n    return deep(depth - 1, {0}) if depth else len('abc'.join([{0}]))\\n"
shapes = []
for count in (3, 5, 7, 11, 13, 17):
    made = {}
    exec(text.format(", ".join(f"v{number}" for number in range(count))), made)
    shapes.append((made["deep"], [chr(97 + number) * 3 for number in range(count)]))
watcher.start(threading.get_ident())
end = time.monotonic() + 4
while time.monotonic() < end:
    for deep, values in shapes:
        deep(30, *values)
        deep(7, *values)
watcher.stop()
print(watcher.facts()["samples"] > 50, boundary.faults)
"""


def test_a_garbage_collection_while_frames_are_read_does_no_harm(tmp_path):
    """Python 3.11 takes memory for a frame that is none any more, where a collection lets the function return."""
    done = subprocess.run(
        [sys.executable, "-c", FRAMES_THAT_GO], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "True []\n"), done.stderr
