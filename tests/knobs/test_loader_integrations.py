"""The loader's knobs on real trainings: a raw loop and each framework, seen from the model."""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from hotlap.plan.catalogue import some_knobs
from hotlap.ports.knob import UNCHANGED
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter

_FILE = Path(__file__).with_name("loader_trainings.py")
_SPEC = importlib.util.spec_from_file_location("loader_trainings", _FILE)
trainings = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = trainings  # where its dataclass looks for its names
_SPEC.loader.exec_module(trainings)

# Of the frameworks, about themselves.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore{rule}")
    for rule in ("::DeprecationWarning", "::FutureWarning", "::UserWarning", "::ResourceWarning")
]


def under(plan: dict[str, Any], train: Any, folder: Path) -> tuple[Any, Fitter]:
    fitter = Fitter(plan, some_knobs(plan))
    seam.install(fitter)
    try:
        return train(folder), fitter
    finally:
        gc.collect()  # iterators that a framework's cycles hold
        fitter.undo()


@pytest.mark.parametrize("name", trainings.TRAININGS)
def test_bitwise_ones_change_no_bit_and_the_others_what_they_say(name: str, tmp_path: Path) -> None:
    train = trainings.TRAININGS[name]
    alone = train(tmp_path)

    workers = {"num-workers": 2, "persistent-workers": True, "prefetch-factor": 3, "worker-threads": 1}
    same, fitter = under(workers, train, tmp_path)
    assert {each.knob for each in fitter.fitted if each.acts} == set(workers)
    assert all(each.numerics in UNCHANGED for each in fitter.fitted if each.knob != "worker-threads")
    assert same.same_bits(alone)
    assert (same.training, same.validating) == (alone.training, alone.validating)

    shapes = {"batch-size": 10, "bucketing": "rows", "max-length": 8, "pin-memory": True}
    other, fitter = under(shapes, train, tmp_path)
    refused = {each.knob: each.reason for each in fitter.fitted if not each.acts}
    assert refused == {"pin-memory": "this host has no accelerator that batches are copied to"}
    assert [rows for rows, _ in other.training] == [10] * (4 * trainings.EPOCHS)
    assert max(length for _, length in other.training) == 8 < max(length for _, length in alone.training)
    assert _padding(other.training[:4]) < _padding(alone.training[:10])
    assert other.validating == alone.validating, "loaders that validate are left alone"

    even, fitter = under({"bucketing": "tokens"}, train, tmp_path)
    assert [each.reason for each in fitter.fitted if not each.acts] == []
    assert len(even.training) == len(alone.training), "as many batches, and so steps"
    per_epoch = len(alone.training) // trainings.EPOCHS
    assert sum(rows for rows, _ in even.training[:per_epoch]) == sum(
        rows for rows, _ in alone.training[:per_epoch]
    )
    assert _padding(even.training[:per_epoch]) < _padding(alone.training[:per_epoch])
    assert even.validating == alone.validating

    assert train(tmp_path).same_bits(alone), "undone, nothing is left"


def _padding(shapes: list[tuple[int, int]]) -> float:
    """Share of one epoch's positions that hold nothing, where its sequences are not longer than they were cut."""
    longest = 8 if max(length for _, length in shapes) == 8 else 13
    tokens = sum(min(longest, len(row)) for row in trainings.Sequences().rows)
    return 1 - tokens / sum(rows * length for rows, length in shapes)
