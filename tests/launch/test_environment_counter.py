"""Steps are counted in shared memory: of the optimizer that steps most, in each process that trains."""

from __future__ import annotations

import os
import shutil

import pytest

from hotlap.launch.environment import StepCounter, counted


def test_the_optimizer_that_steps_most_is_counted(tmp_path):
    counter, one, other = StepCounter(tmp_path), object(), object()
    assert counted(tmp_path) == {}
    assert [counter.count(each) for each in (one, other, one, other, other)] == [1, 1, 2, 2, 3]
    found = counted(tmp_path)[os.getpid()]
    assert found.steps == 3
    assert found.seconds > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process")  # of threads that the test process has
def test_a_fork_has_a_count_of_its_own_and_one_that_does_not_train_leaves_nothing(tmp_path):
    counter = StepCounter(tmp_path)
    optimizer = object()
    counter.count(optimizer)
    for steps in (2, 0):
        child = os.fork()
        if not child:
            for _ in range(steps):
                counter.count(optimizer)
            os._exit(0)
        os.waitpid(child, 0)
    found = counted(tmp_path)
    assert found.pop(os.getpid()).steps == 1
    assert [each.steps for each in found.values()] == [2]


def test_a_process_that_outlives_its_run_counts_for_itself(tmp_path):
    counter = StepCounter(tmp_path / "gone")
    assert counter.count(object()) == 1
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "7.steps").write_bytes(b"torn")
    assert counted(tmp_path / "gone") == {}
    shutil.rmtree(tmp_path / "gone")
