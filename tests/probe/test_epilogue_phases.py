"""Operators under torch.profiler, in this process and in scripts of their own."""

from __future__ import annotations

import os

import pytest
import torch

from hotlap.probe import boundary, epilogue
from hotlap.probe.epilogue import OperatorPhase, PeakPhase
from hotlap.timeline.operators import read_operators

OTHER = 7  # the number of a loader that does not feed training


@pytest.fixture
def operator_phase(session, feed):
    phase = OperatorPhase(session, feed)
    yield phase
    phase.end()


def trace(session):
    return session.folder / f"{session.pid}.trace.json"


def test_only_the_phases_that_were_asked_for(session, feed):
    assert [type(each) for each in epilogue.phases(session, feed, ["ops"])] == [OperatorPhase, PeakPhase]
    assert epilogue.phases(session, feed, []) == []


def test_whole_steps_are_traced_with_their_sizes(session, operator_phase):
    operator_phase.begin()
    for _ in range(2):
        torch.ones(300, 200) @ torch.ones(200, 100)
        operator_phase.step_made()
    torch.ones(11, 11) @ torch.ones(11, 11)  # of a step that is not made
    operator_phase.end()
    ops = read_operators(trace(session))
    assert ops.steps == 2
    products = {each.shapes: each.calls for each in ops.top if each.name == "aten::mm"}
    assert products == {"300x200 200x100": 1}


def test_nothing_is_printed_and_the_environment_is_as_before(operator_phase, capfd, monkeypatch):
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    operator_phase.begin()
    torch.ones(3) + 1
    operator_phase.step_made()
    operator_phase.end()
    assert capfd.readouterr() == ("", "")
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_a_validation_between_two_steps_ends_the_trace(session, feed, operator_phase):
    operator_phase.begin()
    torch.ones(30, 20) @ torch.ones(20, 10)
    feed.gave(0, "batch")
    operator_phase.step_made()
    assert not trace(session).exists()
    feed.gave(OTHER, "batch")
    assert read_operators(trace(session)).steps == 1
    operator_phase.step_made()
    operator_phase.end()
    assert feed.on_other_batch is None


def test_no_whole_step_is_no_trace(session, operator_phase):
    operator_phase.begin()
    operator_phase.end()
    assert not trace(session).exists()
    assert boundary.faults.pop().startswith("operators: no whole step")


def test_a_trace_that_is_too_large_is_dropped_and_told(session, operator_phase, monkeypatch):
    monkeypatch.setattr(epilogue, "_MOST_TRACE_BYTES", 100)
    operator_phase.begin()
    torch.ones(3) + 1
    operator_phase.step_made()
    operator_phase.end()
    assert not trace(session).exists()
    assert "the trace of 1 steps" in boundary.faults.pop()


def test_a_script_that_profiles_itself_keeps_its_profiler(session, operator_phase):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as its_own:
        operator_phase.begin()
        torch.ones(3) + 1
        operator_phase.step_made()
        operator_phase.end()
    assert "aten::add" in {event.key for event in its_own.key_averages()}
    assert not trace(session).exists()
    assert boundary.faults.pop() == "operators: the script has a profiler of its own on"


LOOP = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(400, 8), torch.randn(400, 1))
if "long" in sys.argv:
    data.tensors = tuple(each.repeat(4, 1) for each in data.tensors)
model = torch.nn.Linear(8, 1)
others = torch.nn.Linear(8, 1)
sgd = torch.optim.SGD(model.parameters(), lr=0.01)
adam = torch.optim.Adam(others.parameters())
validation = DataLoader(data, batch_size=8)
seen = 0
for x, y in DataLoader(data, batch_size=4):
    seen += 1
    sgd.zero_grad()
    (model(x) - y).square().mean().backward()
    sgd.step()
    if "gan" in sys.argv:
        (others(x) - y).square().mean().backward()
        adam.step()
    if "validate" in sys.argv and seen % 10 == 0:
        with torch.no_grad():
            print(sum(len(x) for x, y in validation))
    if seen == 60 and "long" not in sys.argv:
        break
print("the end")
"""


def test_a_script_that_ends_under_the_profiler(run_script):
    run = run_script(LOOP, stop_after=58, phases=["ops"])
    assert run.stdout.splitlines()[-1] == "the end" and run.stderr == ""
    assert run.timeline.ops.steps == 2


def test_validation_in_the_phases_ends_as_it_should(run_script):
    run = run_script(LOOP, "long", "validate", stop_after=15, phases=["ops"])
    assert run.exit_code == 0, run.stderr
    assert set(run.stdout.split()) == {"1600"}, "each validation has seen all of its data"
    assert run.timeline.probe.faults == ()


def test_optimizers_that_take_turns_make_one_step(run_script):
    run = run_script(LOOP, "long", "gan", stop_after=20, phases=["ops"])
    assert run.exit_code == 0, run.stderr
    assert len(run.timeline.steps) == 10
    assert run.timeline.ops.steps == 3
    products = [each.calls for each in run.timeline.ops.top if each.name == "aten::addmm"]
    assert products == [2], "one of each model"


def test_the_cpus_peak_is_measured_without_a_step_and_without_random_numbers(session):
    session.facts["model"] = {"dtypes": ["bfloat16", "int64"]}
    phase = PeakPhase(session)
    before = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):  # as a script may have it on
        phase.begin()
    assert phase.steps == 0
    assert torch.equal(torch.get_rng_state(), before)
    assert list(session.facts["cpu_flops"]) == ["float32", "bfloat16"]
    assert min(session.facts["cpu_flops"].values()) > 0
    assert session.facts["cpu_bandwidth"] > 0


@pytest.mark.parametrize(
    "facts",
    [
        {"accelerator": {"kind": "cuda", "name": "a GPU", "memory_bytes": None}},
        {"model": {"dtypes": ["float32"], "devices": ["cpu", "mps"]}},  # one that tells nothing about itself
    ],
)
def test_a_job_on_a_device_needs_no_peak_of_the_cpu(session, facts):
    session.facts.update(facts)
    PeakPhase(session).begin()
    assert "cpu_flops" not in session.facts
