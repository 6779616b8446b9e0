"""The word that it is enough ends a script in a civil way."""

from __future__ import annotations

import pytest
import torch

from hotlap.probe import control, marks
from hotlap.probe.control import Control, WindowDone
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.taps import autograd, optimizer

TRAIN = """
import torch

weight = torch.nn.Parameter(torch.ones(4))
sgd = torch.optim.SGD([weight], lr=0.1)

class Open:
    def __enter__(self): return self
    def __exit__(self, *_): print("closed")

try:
    with Open():
        for step in range(500):
            try:
                sgd.zero_grad()
                weight.square().sum().backward()
                sgd.step()
            except Exception as error:
                print("caught", error)
            print("step", step + 1)
finally:
    print("finally")
"""


def test_finally_blocks_and_context_managers_run_and_the_exit_code_is_0(run_script):
    run = run_script(TRAIN, stop_after=12)
    assert (run.exit_code, run.stderr) == (0, "")
    assert "caught" not in run.stdout
    assert run.stdout.splitlines()[-3:] == ["step 11", "closed", "finally"]
    assert len(run.timeline.steps) == 12, "the twelfth step is made; what follows it in the loop is not"
    assert run.timeline.ending == "window"


@pytest.fixture
def weight(session):
    epilogue = Epilogue(session)
    autograd.install(session, epilogue)
    optimizer.install(session, epilogue)
    return torch.nn.Parameter(torch.ones(4))


def test_a_script_that_swallows_it_hears_it_again_at_every_step(session, weight, written):
    control.stop_after(session.folder, 3)
    sgd = torch.optim.SGD([weight], lr=0.1)
    heard = []
    for _ in range(6):
        weight.square().sum().backward()
        try:
            sgd.step()
        except BaseException as error:
            heard.append(type(error))
    assert heard == [WindowDone] * 4
    assert [name for name, _ in written()].index(str(marks.WINDOW_END)) > 0
    assert session.facts["window_done"]


def test_the_step_itself_is_whole_when_the_word_comes(session, weight):
    control.stop_after(session.folder, 1)
    weight.grad = torch.ones(4)
    with pytest.raises(WindowDone):
        torch.optim.SGD([weight], lr=0.5).step()
    assert weight.tolist() == [0.5] * 4


def test_without_an_optimizer_backward_passes_are_counted(session, weight):
    control.stop_after(session.folder, 100)
    with pytest.raises(WindowDone):
        for _ in range(500):
            weight.square().sum().backward()
    assert weight.grad.tolist() == [100 * 2.0] * 4


def test_the_word_counts_steps_from_the_first(tmp_path):
    control.create(tmp_path)
    listening = Control(tmp_path)
    assert not any(listening.step_made() for _ in range(5))
    control.stop_after(tmp_path, 8)
    assert [listening.step_made() for _ in range(3)] == [False, False, True]
    assert listening.step_made(), "and goes on being said"


def test_many_backward_passes_without_a_step_may_be_accumulation(tmp_path):
    control.create(tmp_path)
    control.stop_after(tmp_path, 3)
    listening = Control(tmp_path)
    assert [listening.backward_made() for _ in range(70)].index(True) == 64


def test_a_folder_that_has_gone_says_nothing(tmp_path):
    listening = Control(tmp_path / "gone")
    assert not listening.step_made()
    assert not listening.backward_made()


def test_it_ends_a_script_as_sys_exit_does():
    with pytest.raises(SystemExit) as ended:
        raise WindowDone(0)
    assert ended.value.code == 0
