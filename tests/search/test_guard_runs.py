"""The guard on real trainings: what changes batches and trains the same model passes, what is wrong does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.verdict import Sameness
from hotlap.measure.ledger import Ledger
from hotlap.plan.catalogue import all_knobs
from hotlap.search.guard_runs import GuardRuns

STAND_IN = "max-length"  # of settings that change batches: what is planted stands in its place


@dataclass(frozen=True)
class ForkingBench:
    """Runs the clips in forks. `planted` are the arguments of the training under a plan."""

    trainings: Any
    folder: Path
    planted: dict

    def witness(self, name, plan, steps, seed, samples, epoch, reference):
        settings = {key.replace("-", "_"): value for key, value in plan.settings.items() if key != STAND_IN}
        train = self.trainings.clips(**self.planted if plan.settings else {})
        run = self.trainings.guarded
        return run(self.folder, train, reference, seed=seed, samples=samples, epoch=epoch, **settings), False


@pytest.fixture
def guard(trainings, tmp_path):
    (tmp_path / "train.py").write_text("")
    ledger = Ledger(tmp_path, Job(("python", "train.py"), str(tmp_path), "train"))

    def make(**planted):
        bench = ForkingBench(trainings, tmp_path, planted)
        return GuardRuns(bench, ledger, all_knobs(), lambda _: None)

    return make


def test_buckets_whose_short_batches_are_easier_train_the_same_model(guard, tmp_path):
    """On the batches of their training they are told apart, or not decided."""
    mine = guard()
    found = mine.ask(Plan({"bucketing": "rows"}), None)
    assert found.sameness is Sameness.SAME, found.reason
    assert "reference batches" in found.reason
    assert list((tmp_path / "reference").iterdir())
    mine.close()
    assert not (tmp_path / "reference").exists()


@pytest.mark.parametrize(
    "planted", [{"planted": "forgets"}, {"planted": "repeats"}, {"rate": 2}, {"rate": 0.5}]
)
def test_what_trains_another_model_is_told(guard, planted):
    mine, plan = guard(**planted), Plan({STAND_IN: 100})
    found = mine.ask(plan, None)
    assert found.sameness is Sameness.DIFFERENT, found.reason
    assert mine.look(plan, None).sameness is Sameness.DIFFERENT


def test_a_run_that_was_asked_serves_bits_too_but_not_the_other_way(guard):
    mine = guard()
    assert mine.ask(Plan({"num-workers": 0}), None).sameness is Sameness.SAME
    runs = len(mine.made)
    assert not mine.asked
    mine.look(Plan({"bucketing": "rows"}), None)
    assert len(mine.asked) == len(mine.made) - runs + 1  # the baseline's was made again
