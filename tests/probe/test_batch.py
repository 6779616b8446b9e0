"""Samples and tokens are read off whatever a loader hands out."""

from __future__ import annotations

import itertools
from collections import UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch

from hotlap.probe import marks
from hotlap.probe.batch import BatchReader, follow, path_to_tensor

Pair = namedtuple("Pair", "label image")
ROWS = torch.zeros(6, 3)


@dataclass
class Record:
    name: str
    image: torch.Tensor


class Container:
    """As frameworks wrap their batches: attributes, no protocol."""

    def __init__(self, data):
        self.stack, self.data = False, data


class Slotted:
    __slots__ = ("data",)

    def __init__(self, data):
        self.data = data


def written(reader, batch):
    marked = []
    reader.read(batch, marked.append)
    return [(mark & 255, mark >> 8) for mark in marked]


def samples_of(*batches):
    reader = BatchReader(0)
    return [dict(written(reader, batch)).get(marks.SAMPLES) for batch in batches]


@pytest.mark.parametrize(
    "batch",
    [
        ROWS,
        (ROWS, torch.zeros(6)),
        [ROWS],
        {"image": ROWS, "label": torch.zeros(6)},
        {"meta": ["a", "b"], "image": ROWS},
        UserDict(image=ROWS),
        Pair("name", ROWS),
        Record("name", ROWS),
        Container([ROWS]),
        {"inputs": [Container({"deep": (ROWS,)})]},
    ],
    ids=["tensor", "tuple", "list", "dict", "strings", "mapping", "named", "data", "container", "nested"],
)
def test_the_size_is_that_of_the_first_tensor(batch):
    assert samples_of(batch) == [6]


def test_the_last_batch_of_an_epoch_is_smaller():
    assert samples_of({"image": ROWS}, {"image": ROWS[:2]}) == [6, 2]


def counted_by(batch_size, *batches):
    """Samples of batches from a loader that puts so many items together."""
    reader, found = BatchReader(0, batch_size), []
    for batch in batches:
        reader.read(batch, found.append)
    return [mark >> 8 for mark in found if mark & 255 == marks.SAMPLES]


def test_a_sample_may_have_several_rows():
    """Three views of each picture in one tensor; the last batch of the epoch holds one sample."""
    views = Container({"views": ROWS})
    assert counted_by(2, views, Container({"views": ROWS[:3]})) == [2, 1]
    assert counted_by(6, ROWS, ROWS[:4]) == [6, 4]


def test_samples_that_differ_in_their_rows_are_those_of_the_loader():
    """Pairs of words from each sentence: 7 of 3 sentences, then 9, then 12, and 6, which looks like a shorter batch."""
    assert counted_by(3, *(torch.zeros(rows, 2) for rows in (7, 9, 12, 6))) == [3, 3, 3, 3]
    assert counted_by(3, *(torch.zeros(rows, 2) for rows in (9, 12, 13))) == [3, 3, 3]


def test_a_list_of_pictures_holds_as_many_samples_as_pictures():
    pictures = [torch.zeros(3, 8, 8) for _ in range(5)]
    assert counted_by(5, pictures) == [5]
    assert counted_by(2, (torch.zeros(2, 3), torch.zeros(2))) == [2]


@pytest.mark.parametrize(
    "batch",
    [
        {"nodes": torch.zeros(101, 4), "of": torch.zeros(101), "label": torch.zeros(32)},
        Container([torch.zeros(11, 4), torch.zeros(11, 4), torch.zeros(10, 4)]),
        ([torch.zeros(6, 4)] * 32, [0] * 32),
        (torch.zeros(20, 32, 4), torch.zeros(32)),
        {"tokens": torch.zeros(411)},
    ],
    ids=["graphs", "chunks", "lists", "time-first", "packed"],
)
def test_rows_that_are_no_samples_do_not_count(batch):
    """Where the loader puts the batches together, it is known how many items each holds."""
    assert counted_by(32, batch, batch) == [32, 32]


def test_a_batch_that_lost_some_bad_samples_holds_the_others():
    assert counted_by(8, ROWS, ROWS[:5]) == [6, 5]


def test_a_scalar_is_one_sample():
    assert samples_of(torch.tensor(3.0)) == [1]


def test_without_a_tensor_a_list_says_its_length():
    assert samples_of(["a", "b", "c"]) == [3]


@pytest.mark.parametrize("batch", [7, None, "text", {"names": ["a"]}, Slotted(ROWS), object])
def test_what_shows_no_size_is_not_measured(batch):
    assert samples_of(batch) == [None]


def test_a_batch_built_otherwise_than_the_first_is_looked_at_again():
    assert samples_of({"image": ROWS}, (ROWS[:4],), {"image": ROWS[:3]}) == [6, 4, 3]


def test_a_batch_that_holds_itself_is_no_endless_walk():
    batch: dict = {}
    batch["self"] = batch
    assert path_to_tensor(batch) is None


def test_reading_changes_nothing():
    class Lazy:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

    batch = {"lazy": Lazy(), "rows": ROWS}
    assert path_to_tensor(batch) == (("item", "rows"),)
    assert follow(batch, (("item", "rows"),)) is ROWS


# -- tokens -----------------------------------------------------------------------------------------------------------

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])


@pytest.fixture
def counted_in(monkeypatch):
    """`counted_in(batches, between)`: which were counted, where a count takes 20 and as much lies between two."""

    def run(batches, between):
        clock = itertools.count(1000)
        now = [0]

        def ticked():
            now[0] += 20 if next(clock) % 2 else between - 20
            return now[0]

        monkeypatch.setattr("hotlap.probe.batch.perf_counter_ns", ticked)
        reader = BatchReader(3)
        tokens = [dict(written(reader, {"attention_mask": MASK})).get(marks.TOKENS) for _ in range(batches)]
        return [index for index, each in enumerate(tokens) if each == 4]

    return run


def test_tokens_of_every_batch_are_counted_where_that_costs_next_to_nothing(counted_in):
    assert counted_in(20, 20_000) == list(range(20))


def test_tokens_of_batches_in_quick_succession_are_counted_in_every_eighth(counted_in):
    assert counted_in(40, 1000) == [*range(9), 16, 24, 32]


def test_a_batch_says_which_loader_it_is_from_before_all_else():
    assert written(BatchReader(3), ROWS)[0] == (marks.LOADER_ID, 3)


def filled(*lengths, size=12, value=0):
    """Rows of tokens of these lengths, filled up to a fixed size."""
    rows = torch.full((len(lengths), size), value, dtype=torch.long)
    for row, length in enumerate(lengths):
        rows[row, :length] = torch.arange(5, 5 + length)
    return rows


def tokens_of(*batches):
    reader = BatchReader(0)
    marked = [dict(written(reader, batch)) for batch in batches]
    return [(each.get(marks.TOKENS), each.get(marks.PADDED)) for each in marked]


@pytest.mark.parametrize("value", [0, 3])
@pytest.mark.parametrize(
    "wrap", [lambda rows: (rows, torch.arange(len(rows))), lambda rows: {"text": rows}, tuple]
)
def test_rows_that_end_in_runs_of_one_value_are_padded(value, wrap):
    rows = filled(3, 9, 5, value=value), filled(2, 4, 12, value=value), filled(7, 7, 8, value=value)
    batches = [wrap((each,)) if wrap is tuple else wrap(each) for each in rows]
    assert tokens_of(*batches) == [(None, None), (None, None), (22, 14)]


@pytest.mark.parametrize(
    "rows",
    [
        torch.eye(12, dtype=torch.long)[[3, 8, 5]],
        torch.arange(36).reshape(3, 12),
        filled(8, 8, 8),
        torch.tensor([[1, 0, 2, 0, 0, 0], [0, 2, 0, 1, 0, 0], [4, 0, 0, 0, 0, 0]]),
    ],
)
def test_rows_that_hold_the_value_elsewhere_or_end_alike_are_not(rows):
    assert tokens_of(*[(rows, torch.arange(3))] * 9) == [(None, None)] * 9
