"""The parent's side of experiments: a job with planted speeds answers its rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotlap.experiments.analysis import MOST_TURNS, Change, ChangeTrial
from hotlap.experiments.conductor import TIME_IS_UP, Conductor, MeasuredJob
from hotlap.facts.experiment import (
    FREE_INPUT,
    HELD,
    READY,
    Experiments,
    ExperimentState,
    Round,
    StepBlock,
    read_failure,
    read_round,
    write_block,
    write_failure,
)
from hotlap.probe import held
from hotlap.stats.compare import Ratio

pytestmark = pytest.mark.runs

PID = 7
STEP_S = 0.01


class PlantedJob:
    """Stands in for a training process: each variant runs at its planted speed, with some noise."""

    def __init__(
        self,
        folder: Path,
        speed: Callable[[Mapping[str, Any]], float | str],
        noise: float,
        start_ns: int,
    ) -> None:
        self.folder, self._speed, self._noise, self._start_ns = folder, speed, noise, start_ns
        self.rounds: list[Round] = []
        self._draw = random.Random(1)

    def answer(self) -> bool:
        """One round; False when there is none to answer."""
        asked = read_round(self.folder, len(self.rounds) + 1)
        if asked is None:
            return False
        self.rounds.append(asked)
        refused: set[int] = set()
        for position in asked.order:
            if position in refused:
                continue
            speed = self._speed(asked.variants[position])
            if isinstance(speed, str):
                refused.add(position)
                write_block(self.folder, PID, StepBlock(len(self.rounds), position, refused=speed))
                continue
            ns = STEP_S * 1e9 / speed * (1 + self._draw.gauss(0, self._noise))
            walls = (round(ns),) * asked.steps
            counts = (8,) * asked.steps
            block = StepBlock(len(self.rounds), position, walls, counts, counts, "", {"a": "rounding"})
            start_ns = self._start_ns if asked.variants[position] else 0
            write_block(self.folder, PID, replace(block, start_ns=start_ns))
        return True


def lead(
    tmp_path: Path,
    speed: Callable[[Mapping[str, Any]], float | str],
    changes: tuple[Change, ...],
    *,
    seconds: float = 60.0,
    noise: float = 0.01,
    world: int = 1,
    start_ns: int = 0,
    epoch_steps: float = 0.0,
    crowded: bool = False,
) -> tuple[Experiments, PlantedJob, list[str]]:
    said: list[str] = []
    job = PlantedJob(tmp_path, speed, noise, start_ns)
    planted = MeasuredJob(PID, world, STEP_S, 0.0, changes, epoch_steps, crowded)
    (tmp_path / f"{PID}.{READY}").touch()
    conductor = Conductor(tmp_path, seconds, lambda: planted, lambda: 100, said.append)
    for _ in range(200):
        conductor.tick()
        job.answer()
        if job.rounds and job.rounds[-1].last:
            break
    found = conductor.results()
    assert found is not None
    return found, job, said


def test_gains_come_out_as_planted_and_are_ranked(tmp_path: Path) -> None:
    speeds = {"a": 1.5, "b": 1.0, "c": 0.7}
    changes = tuple(Change(key, True, 0.5) for key in speeds)
    found, _, _ = lead(tmp_path, lambda plan: speeds[next(iter(plan))] if plan else 1.0, changes)
    assert [each.knob for each in found.tried] == ["a", "b", "c"]
    states = {each.knob: each.state for each in found.tried}
    assert states == {"a": ExperimentState.FASTER, "b": ExperimentState.NO_GAIN, "c": ExperimentState.NO_GAIN}
    first = found.tried[0]
    assert first.gain == pytest.approx(0.5, abs=0.05)
    assert first.interval is not None and first.interval.low < 0.5 < first.interval.high
    assert first.numerics == "rounding" and first.blocks >= 2
    assert found.ended == "all are decided"


def test_what_is_decided_takes_no_more_turns(tmp_path: Path) -> None:
    changes = (Change("slow", 1, 0.5), Change("equal", 1, 0.5))
    speeds = {"slow": 0.5, "equal": 1.0}
    found, job, _ = lead(tmp_path, lambda plan: speeds[next(iter(plan))] if plan else 1.0, changes)
    turns = {each.knob: each.blocks for each in found.tried}
    assert turns["slow"] == 1 < turns["equal"]
    assert {"slow": 1} in [dict(each) for asked in job.rounds for each in asked.done]


def test_a_refusal_is_told_with_its_reason(tmp_path: Path) -> None:
    changes = (Change("a", 1, 0.5), Change("b", 2, 0.4))
    found, _, _ = lead(tmp_path, lambda plan: "it has no place here" if "a" in plan else 1.0, changes)
    refused = found.of("a")[0]
    assert (refused.state, refused.reason, refused.gain) == (
        ExperimentState.REFUSED,
        "it has no place here",
        None,
    )
    assert found.of("b")[0].state is ExperimentState.NO_GAIN


def test_no_time_is_no_experiment(tmp_path: Path) -> None:
    found, job, _ = lead(tmp_path, lambda _: 1.0, (Change("a", 1, 0.5),), seconds=0.0)
    assert found.tried[0].state is ExperimentState.NOT_TRIED
    assert found.tried[0].reason == found.ended == TIME_IS_UP
    assert [asked.last for asked in job.rounds] == [True]


def test_a_restless_machine_leaves_small_differences_undecided(tmp_path: Path) -> None:
    found, _, _ = lead(tmp_path, lambda plan: 1.02 if plan else 1.0, (Change("a", 1, 0.5),), noise=0.2)
    assert found.tried[0].state is ExperimentState.UNDECIDED
    assert found.tried[0].blocks >= 6


def test_a_large_gain_that_scatters_has_more_turns_than_a_small_one(tmp_path: Path) -> None:
    """On a restless machine the verdict must not hang on chance: what would be it is measured until it is decided."""
    speeds = {"large": 1.25, "small": 1.02}
    changes = tuple(Change(key, True, 0.5) for key in speeds)
    found, _, _ = lead(tmp_path, lambda plan: speeds[next(iter(plan))] if plan else 1.0, changes, noise=0.25)
    large, small = (found.of(key)[0] for key in speeds)
    assert large.blocks > MOST_TURNS >= small.blocks
    assert (large.state, small.state) == (ExperimentState.FASTER, ExperimentState.UNDECIDED)


def test_larger_batches_follow_smaller_ones_that_pay(tmp_path: Path) -> None:
    changes = (Change("batch-size", 16, 0.8), Change("batch-size", 32, 0.8))
    found, _, _ = lead(tmp_path, lambda _: 1.0, changes)
    assert {each.setting: each.state for each in found.tried} == {
        "16": ExperimentState.NO_GAIN,
        "32": ExperimentState.NOT_TRIED,
    }
    assert found.of("batch-size")[-1].reason == "a smaller one has to pay first"
    (tmp_path / "again").mkdir()
    speeds = {16: 1.5, 32: 2.0}
    found, _, _ = lead(tmp_path / "again", lambda plan: speeds[plan["batch-size"]] if plan else 1.0, changes)
    assert [each.setting for each in found.faster] == ["32", "16"]


def test_what_is_half_measured_is_decided_before_a_build_that_may_take_the_rest(tmp_path: Path) -> None:
    changes = (Change("compile", "default", 0.9), Change("batch-size", 64, 0.5))
    found, job, _ = lead(tmp_path, lambda plan: 1.1 if plan else 1.0, changes, noise=0.03)
    tried = [next(iter(each)) for asked in job.rounds for each in asked.variants if each]
    assert tried[:4] == ["batch-size"] * 3 + ["compile"]
    assert found.of("batch-size")[0].state is ExperimentState.FASTER


def test_free_input_is_a_bound_and_no_change(tmp_path: Path) -> None:
    found, _, _ = lead(tmp_path, lambda plan: 3.0 if plan else 1.0, (Change(FREE_INPUT, True, 0.6),))
    assert found.measured == () and found.free_input is not None
    assert found.free_input.gain == pytest.approx(2.0, abs=0.2)


def test_several_ranks_begin_a_round_after_a_step_that_all_still_have_to_make(tmp_path: Path) -> None:
    _, job, _ = lead(tmp_path, lambda _: 1.0, (Change("a", 1, 0.5),), world=2)
    assert all(asked.begin > 100 for asked in job.rounds)
    assert all(asked.longest_s == 0.0 for asked in job.rounds)  # a block that is cut short would part them


def test_a_job_that_dies_under_a_change_is_told_so(tmp_path: Path) -> None:
    (tmp_path / f"{PID}.{READY}").touch()
    changes = (Change("batch-size", 16, 0.8), Change("compile", "default", 0.5))
    conductor = Conductor(
        tmp_path, 60.0, lambda: MeasuredJob(PID, 1, STEP_S, 0.0, changes), lambda: 0, lambda _: None
    )
    conductor.tick()
    found = conductor.results()  # it never answers
    assert found is not None
    assert found.ended == "the job ended under batch-size=16"
    assert [each.state for each in found.tried] == [ExperimentState.REFUSED, ExperimentState.NOT_TRIED]
    assert found.of("batch-size")[0].reason == "the job ended while it was tried"


def test_a_script_that_fails_before_the_first_round_is_told_so(tmp_path: Path) -> None:
    conductor = Conductor(tmp_path, 60.0, lambda: None, lambda: 0, lambda _: None)
    assert conductor.results() is None
    write_failure(tmp_path, PID, TypeError("no number"))
    found = conductor.results()
    assert found is not None and not found.tried
    assert found.ended == "the script failed with TypeError: no number"


def test_a_script_that_loads_what_it_could_not_save_is_told_why(tmp_path: Path) -> None:
    script = "open('best.pt')\n"
    try:
        exec(compile(script, "/home/me/train.py", "exec"), {"open": held._opening(open)})
    except FileNotFoundError as error:
        write_failure(tmp_path, PID, error)
    assert read_failure(tmp_path) == (
        "FileNotFoundError: best.pt is not there: the script's files are not written while experiments run "
        "(/home/me/train.py:1)"
    )


def test_progress_names_what_is_tried(tmp_path: Path) -> None:
    _, _, said = lead(tmp_path, lambda _: 1.0, (Change("precision", "bf16-mixed", 0.5),))
    assert said[0].startswith("experiments: precision=bf16-mixed (")


def test_workers_that_start_in_each_epoch_cost_their_start(tmp_path: Path) -> None:
    """Twice as fast, but an epoch has ten steps and starting takes as long as ten of them."""

    start_ns, changes = round(10 * STEP_S * 1e9), (Change("num-workers", 2, 0.5),)
    found, _, _ = lead(
        tmp_path, lambda plan: 2.0 if plan else 1.0, changes, start_ns=start_ns, epoch_steps=10.0
    )
    assert found.tried[0].gain == pytest.approx(2 / 3 - 1, abs=0.05)
    assert found.tried[0].state is ExperimentState.NO_GAIN


def test_a_gain_that_one_turn_makes_plain_is_believed() -> None:
    """A search that has time for one turn must not lose a change that is four times as fast."""
    plain = ChangeTrial(Change("a", 1, 0.9), ratios=[4.0], ratio=Ratio(4.0, 3.5, 4.6))
    assert plain.state is ExperimentState.FASTER and plain.pending
    small = ChangeTrial(Change("a", 1, 0.9), ratios=[1.1], ratio=Ratio(1.1, 1.05, 1.15))
    assert small.state is ExperimentState.UNDECIDED and small.pending
    thrice = ChangeTrial(Change("a", 1, 0.9), ratios=[1.1] * 3, ratio=Ratio(1.1, 1.05, 1.15))
    assert thrice.state is ExperimentState.FASTER and not thrice.pending


def test_a_script_that_dies_as_experiments_begin_says_so(tmp_path: Path) -> None:
    lead = Conductor(tmp_path, 10.0, lambda: None, lambda: 0, lambda _: None)
    lead.tick()
    assert lead.results() is None
    (tmp_path / f"{PID}.{HELD}").touch()
    found = lead.results()
    assert found is not None and found.ended == "the script ended as its experiments began"


def test_what_depends_on_free_cores_is_not_decided_while_others_use_them(tmp_path: Path) -> None:
    changes = (Change("compute-threads", 1, 0.9), Change("precision", "bf16-mixed", 0.9))
    found, _, _ = lead(tmp_path, lambda plan: 2.0 if plan else 1.0, changes, crowded=True)
    states = {each.knob: (each.state, each.reason) for each in found.tried}
    assert states["compute-threads"] == (
        ExperimentState.UNDECIDED,
        "other processes used the cores whose use it changes",
    )
    assert states["precision"][0] is ExperimentState.FASTER
