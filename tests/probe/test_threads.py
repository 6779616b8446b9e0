"""Only the thread that trains is on the critical path: a prefetching thread's waits are nobody's."""

import threading

import pytest

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session


@pytest.fixture
def session(tmp_path):
    session = Session(tmp_path, origin=0)
    yield session
    session.detach()


def codes(session):
    return [mark & 255 for mark in session.ring.buffer]


def in_another_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_call_of_the_training_thread_leaves_two_marks(session):
    assert session.timed(Kind.LOG)(lambda: "said")() == "said"
    assert codes(session) == [marks.enter(Kind.LOG), marks.leave(Kind.LOG)]


def test_a_call_of_another_thread_is_made_and_leaves_none(session):
    said = []
    in_another_thread(lambda: session.timed(Kind.LOG)(said.append)("said"))
    assert said == ["said"]
    assert codes(session) == []


def test_the_thread_that_steps_becomes_the_one_that_is_watched(session):
    from hotlap.probe.taps import optimizer

    torch = pytest.importorskip("torch")
    optimizer.install(session)
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    sgd = torch.optim.SGD([weight], lr=0.1)
    in_another_thread(sgd.step)
    assert session.thread != threading.get_ident()
    assert marks.leave(Kind.STEP) in codes(session)
