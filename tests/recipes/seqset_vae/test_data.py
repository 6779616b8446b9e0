"""Subjects as they are read, packed and put into batches."""

from __future__ import annotations

import argparse
import os

import numpy as np
import pytest
import torch

from hotlap.data import padding_waste
from hotlap_recipes.seqset_vae import BadInputError, make_data
from hotlap_recipes.seqset_vae.data import Collate, SubjectData, dataset_of, pack_once
from hotlap_recipes.seqset_vae.subjects import ParquetSubjects


def options(data_dir, **changed):
    settings = {"packed": False, "batch_size": 4, "num_workers": 0, "pin_memory": False, "seed": 0}
    settings |= {"use_dynamic_padding": True, "bucket_by_length": False, "max_sequence_length": 1000}
    return argparse.Namespace(data_dir=data_dir, **settings | changed)


def assert_equal_items(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])
        assert np.asarray(value).dtype == np.asarray(other[name]).dtype


def test_an_item_is_the_subject_that_was_drawn(data_dir):
    subject = make_data.draw_subject(make_data.World.drawn(0, 16), 2, 0, (4, 40))
    item = ParquetSubjects(str(data_dir), "train")[2]
    np.testing.assert_array_equal(item["events"], subject.events)
    np.testing.assert_array_equal(item["sizes"], subject.sizes)
    np.testing.assert_allclose(item["minutes"], subject.minutes, rtol=1e-6)
    assert item["outcome"] == subject.outcome


def test_both_layouts_and_the_packed_files_give_the_same_items(tmp_path):
    counts, lengths = (3, 1, 1), (4, 9)
    files = make_data.write_subjects(tmp_path / "files", counts, 8, lengths)
    flat = make_data.write_subjects(tmp_path / "flat", counts, 8, lengths, "flat")
    folder = pack_once(flat, "train")
    known = [
        dataset_of(*where)
        for where in ((files, "train", False), (flat, "train", False), (flat, "train", True))
    ]
    assert {len(each) for each in known} == {3}
    for index in range(3):
        first, second, packed = (each[index] for each in known)
        assert_equal_items(first, second)
        assert_equal_items(first, packed)

    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert pack_once(flat, "train") == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    os.utime(flat / "train.parquet", ns=(1, 1))
    assert pack_once(flat, "train") != folder


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_batch_holds_every_event_in_its_set_and_nothing_else(items, dynamic):
    batch = Collate(50, dynamic)(items)
    sets = max(len(item["sizes"]) for item in items) if dynamic else 50
    assert batch["events"].shape == (len(items), sets, 4, 16)
    for row, item in enumerate(items):
        count, present = len(item["sizes"]), batch["present"][row]
        assert present.sum(-1)[:count].tolist() == item["sizes"].tolist()
        assert not present[count:].any()
        torch.testing.assert_close(
            batch["events"][row][present], torch.tensor(item["events"]).float(), rtol=0, atol=0
        )
        assert not batch["events"][row][~present].any()
        np.testing.assert_array_equal(batch["minutes"][row, :count], item["minutes"])
    assert batch["outcome"].tolist() == [float(item["outcome"]) for item in items]


def test_long_sequences_are_cut_at_their_end(items):
    whole, cut = Collate(1000, True)(items), Collate(5, True)(items)
    assert cut["events"].shape[1] == 5
    for name in ("events", "present", "minutes"):
        torch.testing.assert_close(cut[name], whole[name][:, :5], rtol=0, atol=0)


def test_buckets_waste_less_padding_than_a_random_order(data_dir):
    data = SubjectData(options(data_dir, bucket_by_length=True))
    lengths = data.lengths["train"].to_list()
    batches = list(data.train_dataloader().batch_sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(48))
    in_order = [list(range(at, at + 4)) for at in range(0, 48, 4)]
    assert padding_waste(lengths, batches) < 0.5 * padding_waste(lengths, in_order)
    loaded = [batch["minutes"].shape for batch in data.train_dataloader()]
    assert len(loaded) == 12


def test_what_is_missing_is_named(data_dir, tmp_path):
    with pytest.raises(BadInputError, match=r"(?s)no .*subjects.parquet.*make_data --out"):
        SubjectData(options(tmp_path))
    (tmp_path / "subjects.parquet").write_bytes((data_dir / "subjects.parquet").read_bytes())
    with pytest.raises(BadInputError, match="neither"):
        ParquetSubjects(str(tmp_path), "train")
    with pytest.raises(BadInputError, match="no subject for 'other'"):
        ParquetSubjects(str(data_dir), "other")
