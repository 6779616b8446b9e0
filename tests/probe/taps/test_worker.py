"""Inside workers, however they are started: what each item took, and at which line."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.taps import worker

SCRIPT = """
import json, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

ITEMS, BATCH, EPOCHS = 46, 8, 2

class Slow(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        started = time.perf_counter()
        time.sleep(0.003)
        return torch.ones(4), time.perf_counter() - started

class Stream(IterableDataset):
    def __iter__(self):
        return (Slow()[index] for index in range(ITEMS))

def collate(items):
    started = time.perf_counter()
    time.sleep(0.005)
    rows, slept = zip(*items)
    return torch.stack(rows), sum(slept), time.perf_counter() - started

def loaders():
    for method in ("fork", "forkserver", "spawn"):
        yield DataLoader(Slow(), BATCH, num_workers=1, multiprocessing_context=method, collate_fn=collate)
    yield DataLoader(Slow(), BATCH, num_workers=2, persistent_workers=True, collate_fn=collate)
    yield DataLoader(Slow(), BATCH, collate_fn=collate)
    yield DataLoader(Stream(), BATCH, collate_fn=collate)

if __name__ == "__main__":
    net = torch.nn.Linear(4, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    asleep = []
    kept = list(loaders())
    for loader in kept:
        fetch = collating = 0.0
        for epoch in range(EPOCHS):
            for rows, slept, collated in loader:
                fetch, collating = fetch + slept, collating + collated
                net(rows).sum().backward()
                sgd.step()
        asleep.append([fetch, collating])
    print(json.dumps(asleep))
"""
LOADERS = ["fork", "forkserver", "spawn", "persistent", "in the main process", "iterable"]
SLEEPING = SCRIPT.splitlines().index("        time.sleep(0.003)") + 1
COLLATING = SCRIPT.splitlines().index("    time.sleep(0.005)") + 1

pytestmark = pytest.mark.alone
WITHIN_S = 0.0003  # of one item or batch: what attribution promises, 5 % or 0.3 ms


@pytest.fixture(scope="module")
def run(run_script_once):
    return run_script_once(SCRIPT)


@pytest.fixture(scope="module")
def timeline(run):
    assert run.exit_code == 0, run.stderr
    return run.timeline


@pytest.fixture(params=range(6), ids=LOADERS)
def number(request):
    return request.param


def rows_of(timeline, number):
    return [row for row in timeline.workers if row.loader == number]


def test_nothing_is_said_to_the_user(run):
    assert run.stderr == ""
    assert run.timeline.probe.faults == ()


def test_all_loaders_are_seen_with_their_workers(timeline, number):
    loader = timeline.loaders[number]
    assert loader.num_workers == (1, 1, 1, 2, 0, 0)[number]
    assert loader.epochs == 2
    assert loader.training
    assert loader.iterable == (number == 5)
    workers = [row.worker for row in rows_of(timeline, number)]
    assert workers == [[0], [0], [0], [0, 1], [-1], [-1]][number]


def test_every_item_is_counted(timeline, number):
    rows = rows_of(timeline, number)
    assert sum(row.batches for row in rows) == 12, "the fetch that finds a stream exhausted is no batch"
    assert sum(row.items for row in rows) == 92


def test_the_planted_sleeps_are_found(run, timeline, number):
    fetch, collate = run.printed[number]
    rows = rows_of(timeline, number)
    items, batches = sum(row.items for row in rows), sum(row.batches for row in rows)
    assert sum(row.fetch_s for row in rows) == pytest.approx(fetch, rel=0.05, abs=WITHIN_S * items)
    assert sum(row.collate_s for row in rows) == pytest.approx(collate, rel=0.05, abs=WITHIN_S * batches)
    assert sum(row.cpu_s for row in rows) < fetch / 2, "a sleep uses no CPU"


def test_workers_are_started_anew_each_epoch_unless_they_persist(timeline, number):
    startups = [row.startups for row in rows_of(timeline, number)]
    assert startups == [[2], [2], [2], [1, 1], [1], [1]][number]


def test_starting_a_worker_takes_time_and_spawning_more(timeline):
    fork, _, spawn = (rows_of(timeline, number)[0].startup_s for number in range(3))
    assert 0 < fork < spawn


def test_between_batches_a_worker_waits(timeline):
    (row,) = rows_of(timeline, 0)
    assert 0 < row.busy <= 1


def test_the_sleeping_lines_are_named(run, timeline):
    lines = [line for line in timeline.lines if line.role == "worker"]
    assert lines[0].place.line == SLEEPING
    assert lines[0].place.file.endswith("script.py")
    assert lines[0].place.code == "time.sleep(0.003)"
    fetch, collate = (sum(each[kind] for each in run.printed[:4]) for kind in (0, 1))
    assert lines[0].share == pytest.approx(fetch / (fetch + collate), abs=0.15)
    assert COLLATING in [line.place.line for line in lines[:3]]


def test_of_cheap_fetches_in_the_main_process_some_stand_for_all_and_collate_is_put_back(session):
    worker.install(session)
    loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=1)
    iterator = iter(loader)
    for _ in range(64):
        next(iterator)
    fetches = [mark for mark in session.ring.buffer if mark & 255 == marks.enter(Kind.FETCH)]
    assert 8 <= len(fetches) < 64, "on a busy machine some are dear, and the next is then watched too"
    assert iterator._dataset_fetcher.collate_fn is loader.collate_fn
