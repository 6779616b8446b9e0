"""Only the thread that trains is on the critical path: a prefetching thread's waits are nobody's."""

import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotlap.probe import marks
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.taps import autograd, files, loader, model, optimizer, sync, transfer


def in_another_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def codes(session):
    return [mark & 255 for mark in session.ring.buffer]


def test_a_call_of_the_training_thread_leaves_two_marks(session):
    assert session.timed(Kind.LOG)(lambda: "said")() == "said"
    assert codes(session) == [marks.enter(Kind.LOG), marks.leave(Kind.LOG)]


def test_a_call_of_another_thread_is_made_and_leaves_none(session):
    said = []
    in_another_thread(lambda: session.timed(Kind.LOG)(said.append)("said"))
    assert said == ["said"]
    assert codes(session) == []


def test_no_tap_listens_to_another_thread(session, tmp_path):
    for tap in (model, transfer, sync, files):
        tap.install(session)
    loader.install(session, Epilogue(session))
    net, batches = nn.Linear(2, 2), DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    session.start()  # the model is found
    session.sampler.stop()  # its thread would empty the ring
    session.sampler.idle = False
    del session.ring.buffer[:]
    seen = []

    def prefetch():
        for (batch,) in batches:
            net.eval()
            moved = batch.to("cpu", copy=True)
            seen.append(net(moved).sum().item())
            print(seen[-1])
            torch.save(moved, tmp_path / "batch.pt")

    in_another_thread(prefetch)
    assert len(seen) == 2
    assert codes(session) == []
    prefetch()
    kinds = {code >> 1 for code in codes(session) if code < marks.VALUE_FROM}
    assert kinds == {*map(int, (Kind.LOADER, Kind.DATA, Kind.TRANSFER, Kind.EVAL_FORWARD))} | {
        *map(int, (Kind.SYNC, Kind.LOG, Kind.CHECKPOINT))
    }


def test_the_thread_that_steps_becomes_the_one_that_is_watched(session):
    optimizer.install(session, Epilogue(session))
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    sgd = torch.optim.SGD([weight], lr=0.1)
    in_another_thread(sgd.step)
    assert session.thread != threading.get_ident()
    assert session.sampler._watched == session.thread
    assert marks.leave(Kind.STEP) in codes(session)
    sgd.step()
    assert session.thread == session.sampler._watched == threading.get_ident()


def test_without_an_optimizer_the_thread_of_the_backward_pass_is_watched(session):
    autograd.install(session, Epilogue(session))
    in_another_thread(lambda: torch.ones(2, requires_grad=True).sum().backward())
    assert marks.leave(Kind.BACKWARD) in codes(session)
    assert session.sampler._watched == session.thread != threading.get_ident()
