"""A job as a child: its exit code, its output, and every signal, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hotlap.errors import UsageError
from hotlap.facts.job import Job
from hotlap.launch.process import RunningJob, Signals, run_job
from hotlap.probe import boundary

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals as Unix knows them")
SOURCE = Path(__file__).parents[2] / "src"

# A job that writes down every SIGINT and SIGTERM it gets, and ends half a second after the first.
COUNTS = """
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: seen.append(number))
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.02)
    if seen:
        end = min(end, time.monotonic() + float(sys.argv[1]))
print("seen", *[int(number) for number in seen], flush=True)
"""

# hotlap's side, in a process of its own so that the test may send it signals.
PARENT = """
import os, sys
from hotlap.facts.job import Job
from hotlap.launch.process import RunningJob, Signals, run_job
with Signals() as signals:
    outcome = run_job(Job(tuple(sys.argv[1:]), ".", "job"), os.environ, lambda pid: True, signals)
print("outcome", outcome.exit_code, outcome.interrupted, outcome.by_signal, flush=True)
"""


def job(*argv: str) -> Job:
    return Job(argv, str(Path.cwd()), "job")


def run(*argv, on_tick=lambda pid: True, **options):
    with Signals() as signals:
        return run_job(job(*argv), os.environ, on_tick, signals, **options)


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_jobs_own(code):
    outcome = run(sys.executable, "-c", f"raise SystemExit({code})")
    assert (outcome.exit_code, outcome.by_signal, outcome.interrupted) == (code, None, False)
    assert outcome.seconds > 0
    assert outcome.ended_at <= time.perf_counter_ns()


def test_a_job_that_a_signal_killed_ends_as_a_shell_would_show_it():
    outcome = run(sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (outcome.exit_code, outcome.by_signal) == (137, 9)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("no-such-command",), "there is no command 'no-such-command'."),
        (("{folder}/plain.txt",), "plain.txt' cannot be executed."),
        (("{folder}/strange",), "strange' cannot be started: Exec format error."),
    ],
)
def test_a_command_that_cannot_be_started_is_told(tmp_path, argv, says):
    (tmp_path / "plain.txt").touch()
    (tmp_path / "strange").write_bytes(b"\x00\x01\x02")
    (tmp_path / "strange").chmod(0o755)
    with pytest.raises(UsageError) as refusal:
        run(*(word.format(folder=tmp_path) for word in argv))
    assert says in refusal.value.what
    assert refusal.value.remedy


def test_output_is_the_jobs_own_unless_standard_output_is_wanted(capfd):
    say = (sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)")
    run(*say)
    assert capfd.readouterr() == ("out\n", "err\n")
    run(*say, quiet_stdout=True)
    assert capfd.readouterr() == ("", "out\nerr\n")


def test_it_is_looked_at_several_times_and_may_be_ended_from_here():
    pids = []

    def enough(pid):
        pids.append(pid)
        return len(pids) < 3

    outcome = run(sys.executable, "-c", "import time; time.sleep(60)", on_tick=enough)
    assert len(set(pids)) == 1
    assert outcome.by_signal == signal.SIGINT
    assert not outcome.interrupted, "the user did not"


def test_a_fault_in_the_looking_leaves_the_job_alone():
    def fail(pid):
        raise RuntimeError("a look went wrong")

    try:
        outcome = run(sys.executable, "-c", "import time; time.sleep(0.7)", on_tick=fail)
        assert outcome.exit_code == 0
        assert "a look went wrong" in boundary.faults[0]
    finally:
        boundary.faults.clear()


@pytest.fixture
def parent(eventually):
    """hotlap with a job that counts its signals, in a process group of its own."""
    started = []

    def start(linger: float = 0.3, *prefix: str) -> subprocess.Popen[str]:
        command = [*prefix, sys.executable, "-c", PARENT, sys.executable, "-u", "-c", COUNTS, str(linger)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        child = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        started.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        os.killpg(child.pid, signal.SIGKILL) if child.poll() is None else None
        child.communicate()


def said(child: subprocess.Popen[str]) -> list[str]:
    out, err = child.communicate(timeout=60)
    assert err == ""
    return out.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_hotlap_alone_is_passed_on_once(parent, number):
    child = parent()
    child.send_signal(number)
    assert said(child) == [f"seen {int(number)}", "outcome 0 True None"]


def test_a_signal_to_the_whole_group_reaches_the_job_once(parent):
    child = parent()
    os.killpg(child.pid, signal.SIGINT)
    assert said(child) == ["seen 2", "outcome 0 True None"]


def test_a_second_interrupt_reaches_the_job_too(parent):
    child = parent(linger=3)
    child.send_signal(signal.SIGINT)
    time.sleep(1.6)
    child.send_signal(signal.SIGINT)
    assert said(child) == ["seen 2 2", "outcome 0 True None"]


def test_a_third_interrupt_ends_a_job_that_does_not_end(parent):
    child = parent(linger=60)
    for _ in range(3):
        child.send_signal(signal.SIGINT)
        time.sleep(1.5)
    assert said(child)[-1] == "outcome 137 True 9"


def test_what_is_ignored_stays_ignored(parent):
    """`nohup hotlap ...`, or a background job of a shell script."""
    child = parent(0.3, "sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh")
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGINT)
    time.sleep(1.0)
    child.send_signal(signal.SIGTERM)
    assert said(child) == ["seen 15", "outcome 0 True None"]


def test_an_interrupt_while_the_report_is_written_is_not_an_exception_later():
    with Signals():
        signal.raise_signal(signal.SIGINT)
    time.sleep(0.05)  # it would be raised here


def test_signals_are_held_for_this_thread_and_given_to_the_child():
    held = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Signals() as signals:
        inside = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        assert {signal.SIGINT, signal.SIGTERM} <= inside
        shown = "import signal; raise SystemExit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
        assert run_job(
            job(sys.executable, "-c", shown), os.environ, lambda _: True, signals
        ).exit_code == len(held)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == held


def test_where_the_system_cannot_wait_for_signals_an_interrupt_counts_as_the_terminals(monkeypatch):
    monkeypatch.delattr(signal, "sigtimedwait")
    with Signals() as signals:
        here = threading.get_ident()
        threading.Timer(0.2, signal.pthread_kill, [here, signal.SIGINT]).start()
        assert signals.next(5.0) == (signal.SIGINT, True)
        assert signals.next(0.0) is None


def test_a_signal_that_came_while_the_job_was_being_started_reaches_it(tmp_path):
    """The terminal gave it to hotlap alone: there was no job yet."""
    job = Job((sys.executable, "-c", "import time; time.sleep(60)"), str(tmp_path), "job")
    with Signals() as signals:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        running = RunningJob(
            job, os.environ, lambda _: True, signals, (None, subprocess.DEVNULL), ends_with_us=False
        )
        outcome = running.outcome()
    assert outcome.interrupted
    assert outcome.by_signal == signal.SIGINT


def test_a_signal_that_reaches_a_thread_of_a_library_is_no_exception():
    """Threads that were there before do not hold it, and the system gives it to any of them."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    with Signals() as signals:
        signal.pthread_kill(other.ident, signal.SIGINT)
        got = [signals.next(0.5), signals.next(0)]
    over.set()
    other.join()
    assert got == [(signal.SIGINT, False), None]
