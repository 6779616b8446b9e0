"""All variants of a round at once, in slices: real jobs, held and released many times a second."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Rate, Status
from hotlap.launch import runfolder
from hotlap.launch.holding import Turns, read_clock
from hotlap.measure import contest as contests
from hotlap.measure import interleaved_round as heats
from hotlap.measure.contest import Variant, contest
from hotlap.measure.interleaved_round import Heat

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="held only where /proc tells of threads")
SCRIPTS, SOURCE = Path(__file__).parent / "scripts", Path(__file__).parents[2] / "src"

COMPARES = """
import sys
from pathlib import Path
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.launch.process import Signals
from hotlap.measure.contest import Variant, contest
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
job = Job((sys.executable, *sys.argv[2:]), ".", "job")
with Signals() as signals:
    bench = Bench(job, Path(sys.argv[1]), collect, signals, 100000)
    held = contest(bench, [Variant(name, job, Plan()) for name in "ab"], 4, print, sliced=True)
print("interrupted", held.interrupted, len(held.trials))
"""


def held(bench, rounds, **commands):
    """A contest in slices; each command is the words of a script."""
    made = {name: bench(*words) for name, words in commands.items()}
    variants = [Variant(name, each.job, Plan()) for name, each in made.items()]
    first = next(iter(made.values()))
    return contest(first, variants, rounds, lambda *_: None, sliced=True)


def test_a_held_job_with_workers_looks_as_if_it_never_was(bench):
    """Its steps show no pause, its batches are complete (the script asserts it), and its end is its own."""
    job = bench("spins.py", "40", "2", steps=60)
    attempt = job.begin(1, Plan(), least_s=0.0)
    run, probe = attempt.started, runfolder.probe_folder(attempt.folder)
    run.watch.observer.asks = False
    with Turns() as turns:
        hold = turns.enter(run.running.child.pid, probe, run.origin)
        while run.running.going:
            run.running.tick(job.signals.next(0.05))
            if run.watch.observer.steps > 5 and hold.held_s < 3.0:
                hold.hold()
                time.sleep(0.3)
                hold.release()
            elif run.watch.observer.enough and hold.held_s >= 3.0:
                run.watch.observer.ask_to_end()
    clock, ended = read_clock(probe), run.running.outcome().ended_at - run.origin
    trial, seen = attempt.concluded(run.outcome())
    assert trial.status is Status.DONE, trial.reason
    assert clock.at(ended) == pytest.approx(ended - hold.held_s * 1e9)
    steps = seen[0].steps
    assert steps.start[-1] + steps.wall[-1] <= clock.at(ended)
    assert all(later >= earlier for earlier, later in pairwise(steps.start))
    assert sorted(steps.wall)[-5] < 0.3e9, "ten pauses would be ten long steps"
    assert {worker.worker for worker in seen[0].workers} >= {0, 1}


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch):
    monkeypatch.setattr(contests, "SLICES_S", 1.0)


@pytest.mark.alone
def test_a_planted_slow_down_is_found_in_few_rounds(bench, monkeypatch):
    monkeypatch.setattr(contests, "SLICES_S", heats.SLICES_S)  # as the command has it
    # Steps of some milliseconds: a slice then holds several, and few rounds are enough on a restless machine.
    found = held(bench, 4, plain=("spins.py", "40"), same=("spins.py", "40"), slow=("spins.py", "48"))
    assert found.sliced
    slow, same = found.ratio("slow"), found.ratio("same")
    assert slow is not None and same is not None
    assert slow.high < 1.0
    assert slow.value == pytest.approx(1 / 1.2, rel=0.1)
    assert not same.decided


def test_the_variants_of_a_round_are_not_foreign_to_each_other():
    """Each saw the other's 0.4 cores and 0.3 of somebody else; what was before the steady steps does not count."""
    gauges = [SimpleNamespace(t=t, cpu=0.3, workers_cpu=0.1, foreign_cpu=0.7) for t in (5, 15)]
    early = SimpleNamespace(t=1, cpu=2.0, workers_cpu=0.0, foreign_cpu=2.0)
    steps = SimpleNamespace(start=[0, 3])
    seen = SimpleNamespace(gauges=[early, *gauges], steady_steps=1, steps=steps, steady_from=1)
    assert heats._foreign_cores([seen, seen]) == pytest.approx(0.3)
    assert heats._foreign_cores([seen, SimpleNamespace(**{**vars(seen), "gauges": []})]) is None


def test_a_job_that_waits_is_not_held(bench):
    """Its timers would go on. All run one after the other, from the first round on."""
    found = held(bench, 1, plain=("spins.py", "40"), waits=("waits.py",))
    assert not found.sliced
    assert re.search(r"waits\.py waits for \d+% of its time", found.obstacle)
    assert [trials[0].status for trials in found.trials.values()] == [Status.DONE, Status.DONE]


@pytest.mark.alone
def test_what_is_not_alike_is_told_without_slices(bench):
    found = held(bench, 1, plain=("spins.py", "40"), slow=("spins.py", "240"))
    assert (found.sliced, found.obstacle) == (False, "they are not alike")
    plain, slow = (found.rates(name)[0] for name in ("plain", "slow"))
    assert plain > 2 * slow


@pytest.mark.parametrize(("samples", "expected"), [(12.0, True), (30.0, False)])
def test_what_was_counted_unlike_is_held_against_each_other_by_samples(samples, expected):
    """One told in tokens, one in samples: without a common count nothing would ever be too unlike."""
    plain = Figures(10.0, "samples", 8.0, 0.0, 8.0, None, 1.0, 0.0, 1.0, 0.0, 60)
    rates = {"samples": Rate(samples, 0.1), "tokens": Rate(100 * samples, 0.01)}
    other = replace(plain, throughput=100 * samples, counts="tokens", rates=rates)
    known = replace(plain, rates={"samples": Rate(10.0, 0.1)})
    assert heats._alike([known, other]) is expected


def test_a_job_that_ends_too_soon_is_not_judged_by_slices(bench):
    """Its steps were made beside the others' start."""
    short = ("spins.py", "40", "0", str(10**9), "3")
    found = held(bench, 1, plain=("spins.py", "40"), short=short)
    assert (found.sliced, found.obstacle) == (False, "one of them has too few steps for slices")
    assert found.trials["short"][0].status is Status.DONE


class Pressed:
    """Ctrl-C at the first look."""

    def next(self, _seconds):
        return signal.SIGINT, True


def test_an_interrupt_while_the_jobs_end_starts_no_other_run():
    heat = Heat(Pressed())
    ending = SimpleNamespace(going=True)
    ending.tick = lambda received: setattr(ending, "going", received is None)
    heat._entrants = [ending]
    heat._wait_for_the_end()
    assert heat._interrupted


def test_a_job_that_dies_is_a_result_and_the_other_goes_on(bench):
    """In the first round it may have died of the other one beside it."""
    job, mortal = bench("spins.py", "40"), bench("spins.py", "40", "0", "90")
    heat = Heat(job.signals)
    starts = [lambda: job.begin(1, Plan(), least_s=2.5), lambda: mortal.begin(2, Plan(), least_s=30.0)]
    trials = heat.run(starts, careful=True)
    assert [each.status for each in trials] == [Status.DONE, Status.DEAD]
    assert "planted" in trials[1].reason
    assert "did not last beside the others" in heat.obstacle


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_job_stays_stopped_or_behind(number, tmp_path):
    """Interrupted, all end. When hotlap is killed, they go on, as any job whose parent has gone."""
    words = [str(tmp_path), str(SCRIPTS / "spins.py"), "40"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", COMPARES, *words], stdout=subprocess.PIPE, env=environment, text=True
    )
    family, jobs = psutil.Process(parent.pid), []
    try:
        _until(lambda: all(_taken_turns(tmp_path / "trials" / number) for number in "12"))
        jobs = _jobs(family)
        parent.send_signal(number)
        said = parent.communicate(timeout=60)[0]
        assert number == signal.SIGKILL or "interrupted True 0" in said
        _until(lambda: not any(_stopped(each) for each in jobs))
        if number == signal.SIGINT:
            _until(lambda: not any(each.is_running() for each in jobs))
    finally:
        parent.kill()
        for each in jobs:
            if each.is_running():
                each.kill()


def _taken_turns(trial):
    """A job is held once until all have started; the other pauses are those between slices."""
    pauses = runfolder.probe_folder(trial) / "pauses"
    return pauses.is_file() and pauses.stat().st_size > 5 * 16


def _jobs(family):
    return [each for each in family.children(recursive=True) if "spins.py" in " ".join(_words(each))]


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _stopped(process):
    try:
        return process.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def _until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)
