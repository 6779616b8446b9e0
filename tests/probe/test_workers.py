"""Workers that are started again each epoch leave a bounded number of files behind, from the whole run."""

from __future__ import annotations

import itertools

import pytest

from hotlap.probe import workers
from hotlap.probe.workers import Generations

EPOCHS, MOST = 9, 4
SCRIPT = f"""
import torch
from torch.utils.data import DataLoader, TensorDataset

import hotlap.probe.workers

hotlap.probe.workers._MOST_STARTS = {MOST}  # sooner than in earnest: each start takes a while
net = torch.nn.Linear(4, 1)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4, num_workers=1)
for epoch in range({EPOCHS}):
    for (rows,) in loader:
        net(rows).sum().backward()
        sgd.step()
"""


class Starts:
    """Starts of two workers, each of which writes files of a given size."""

    def __init__(self, folder, limit):
        self.folder = folder
        self.kept = Generations(folder, limit)

    def begin(self, number, size=8):
        pids = {str(1000 + 2 * number + worker): worker for worker in range(2)}
        for pid in pids:
            for suffix in (".marks", ".samples", ".json"):
                (self.folder / f"{pid}{suffix}").write_bytes(b"x" * size)
        self.kept.begin(pids)

    @property
    def numbers(self):
        return sorted({(int(pid) - 1000) // 2 for pid in self.kept.pids})

    @property
    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def starts(tmp_path):
    return Starts(tmp_path, limit=1 << 20)


def expected(pids):
    return sorted(f"{pid}{suffix}" for pid in pids for suffix in (".marks", ".samples", ".json"))


def test_all_are_kept_at_first(starts):
    for number in range(20):
        starts.begin(number)
    assert starts.numbers == list(range(20))
    assert starts.files == expected(starts.kept.pids)


def test_of_many_starts_some_are_kept_evenly_from_the_first_to_the_last(starts):
    for number in range(200):
        starts.begin(number)
        assert len(starts.numbers) <= workers._MOST_STARTS
    assert starts.kept.started == 200
    assert starts.files == expected(starts.kept.pids), "what is not kept is gone from the disk"
    first, *_, before_last, last = numbers = starts.numbers
    assert (first, before_last, last) == (0, 198, 199), "the latest two may still be writing"
    assert len(numbers) >= workers._MOST_STARTS / 2 - 1
    steps = {later - earlier for earlier, later in itertools.pairwise(numbers[:-2])}
    assert steps == {8}


def test_large_files_are_thinned_out_sooner(tmp_path):
    starts = Starts(tmp_path, limit=4 * 6 * 1000)  # four ended starts of two workers with three files
    for number in range(24):
        starts.begin(number, size=1000)
        ended = sum(path.stat().st_size for path in tmp_path.iterdir()) - 2 * 6 * 1000
        assert ended <= 4 * 6 * 1000
    assert starts.numbers == [0, 8, 16, 22, 23]


def test_workers_that_persist_are_one_start(starts):
    for _ in range(100):
        starts.begin(7)
    assert starts.kept.started == 1
    assert starts.numbers == [7]


def test_a_loader_without_workers_has_no_start(starts):
    starts.kept.begin({})
    assert (starts.kept.started, starts.kept.pids) == (0, {})


def test_a_number_that_the_system_gives_again_belongs_to_the_new_process(starts):
    starts.begin(0)
    for number in range(1, 40):
        starts.begin(number)
    starts.begin(0)
    assert (starts.folder / "1000.marks").exists()
    for number in range(100, 200):
        starts.begin(number)
    assert starts.files == expected(starts.kept.pids)


def test_a_long_run_without_persistent_workers(run_script):
    done = run_script(SCRIPT)
    assert done.exit_code == 0, done.stderr
    timeline = done.timeline
    assert timeline.probe.faults == ()
    assert len(list(done.folder.glob("*.marks"))) <= MOST + 1  # and the script itself
    assert len(list(done.folder.glob("*.json"))) <= MOST + 1
    (loader,), (worker,) = timeline.loaders, timeline.workers
    assert loader.epochs == worker.startups == EPOCHS
    assert 0 < worker.batches < 2 * EPOCHS
    assert worker.items == 4 * worker.batches
    assert 0 < worker.startup_s < sum(timeline.steps.wall) / 1e9
