"""Items as fields and back, and columns of fields."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotlap.data.formats import build_column, value_at
from hotlap.data.samples import checksum, flatten, restore
from hotlap.data.tarshards import from_npy, to_npy
from hotlap.errors import HotlapError


@pytest.mark.parametrize(
    "item",
    [
        7,
        "text",
        None,
        b"bytes",
        [1, 2, [3]],
        (1, "a", None),
        {"a": (1, {"b": [True, 2.5]}), "c": {}},
        {"empty": [], "nothing": ()},
    ],
    ids=repr,
)
def test_items_of_plain_values_come_back_equal(item):
    if item == {"empty": [], "nothing": ()}:
        with pytest.raises(HotlapError, match=r"'nothing' is a builtins\.tuple"):
            flatten(item)
        return
    fields, template = flatten(item)
    back = restore(fields, template)
    assert back == item and type(back) is type(item)


def test_tensors_arrays_and_scalars_keep_their_kind():
    item = {
        "t": torch.arange(3).double(),
        "a": np.eye(2, dtype=np.int8),
        "s": np.float32(1.5),
        "l": [torch.ones(1)],
    }
    fields, template = flatten(item)
    assert sorted(fields) == ["a", "l.0", "s", "t"]
    back = restore(fields, template)
    assert (
        torch.equal(back["t"], item["t"])
        and back["t"].dtype == torch.float64
        and torch.is_tensor(back["l"][0])
    )
    assert back["a"].dtype == np.int8 and type(back["s"]) is np.float32 and back["s"] == 1.5


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"x": torch.ones(2, dtype=torch.bfloat16)}, "tensor of torch.bfloat16"),
        ({"x": {1, 2}}, "field 'x' is a builtins.set"),
        ({"a.b": 1}, "a field is called 'a.b'"),
        ({"a/b": 1}, "a field is called 'a/b'"),
    ],
)
def test_what_cannot_be_stored_is_named(item, message):
    with pytest.raises(HotlapError, match=message):
        flatten(item)


def test_the_checksum_sees_every_difference():
    fields = {"x": np.arange(6, dtype=np.int32), "n": b"abc", "v": [1, None]}
    others = [
        {**fields, "x": np.arange(6, dtype=np.int64)},
        {**fields, "x": np.arange(6, dtype=np.int32).reshape(2, 3)},
        {**fields, "x": np.array([0, 1, 2, 3, 4, 4], dtype=np.int32)},
        {**fields, "n": b"abd"},
        {**fields, "v": [1, 0]},
        {"y": fields["x"], "n": b"abc", "v": [1, None]},
    ]
    seen = {checksum(each) for each in (fields, *others)}
    assert len(seen) == 1 + len(others)
    strided = np.arange(12, dtype=np.int32)[::2] // 2
    assert checksum({**fields, "x": strided, "n": memoryview(b"abc")}) == checksum(fields)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [np.zeros(2), np.zeros((2, 2))],
            r"float64 with 1 axes in sample 'k0' and float64 with 2 in sample 'k1'",
        ),
        ([np.zeros(2), np.zeros(2, np.float32)], "float64 with 1 axes in sample 'k0' and float32"),
        ([np.zeros(2), 5], "is array in sample 'k0' and int in sample 'k1'"),
        ([np.array([object()])] * 2, "array of object"),
        ([np.zeros(2, dtype=[("a", "i4")])] * 2, "array of"),
    ],
)
def test_a_column_that_does_not_fit_together_names_the_first_that_differs(values, message):
    with pytest.raises(HotlapError, match=message):
        build_column("x", ["k0", "k1"], values)


def test_numbers_too_large_for_a_column_are_kept():
    column = build_column("x", ["a", "b"], [2**70, -1])
    assert [value_at(column, at) for at in range(2)] == [2**70, -1]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(()),
        np.zeros((0, 3)),
        np.arange(6).reshape(2, 3).T,
        np.array(["a", "bcd"]),
        np.arange(3, dtype=">i4"),
    ],
    ids=lambda array: str(array.dtype) + str(array.shape),
)
def test_npy_is_what_numpy_writes(array, tmp_path):
    (tmp_path / "x.npy").write_bytes(to_npy(array))
    theirs, ours = np.load(tmp_path / "x.npy"), from_npy(memoryview(to_npy(array)))
    assert theirs.dtype == ours.dtype == array.dtype and theirs.shape == ours.shape and (theirs == ours).all()
    np.save(tmp_path / "fortran.npy", np.asfortranarray(array) if array.ndim else array)
    assert np.array_equal(from_npy(memoryview((tmp_path / "fortran.npy").read_bytes())), array)
