from __future__ import annotations

import pytest

from hotlap.timeline.operators import dtype, shapes


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([[64, 512], [512, 10]], "64x512 512x10"),
        ([[], [512], []], "512"),
        ([[1], [2], [3], [4]], "1 2 3"),
        ([[[64]] * 16, []], "[64]*16"),
        ([[[512, 64], [512]]], "[512x64 512]"),
        ([[[512, 64], [512], [10, 512], []]], "[512x64 512 +2]"),
        ([[[], []]], "[1]*2"),
        ([], ""),
    ],
)
def test_sizes_of_inputs(dims, text):
    assert shapes({"args": {"Input Dims": dims}}) == text


@pytest.mark.parametrize(
    ("types", "name"),
    [
        (["float", "Scalar"], "float32"),
        (["", "ScalarList", "c10::BFloat16"], "bfloat16"),
        (["c10::Half"], "float16"),
        (["TensorList", "Scalar"], ""),
        (["c10::Float8_e4m3fn"], "c10::Float8_e4m3fn"),
        ([], ""),
    ],
)
def test_type_of_the_first_tensor(types, name):
    assert dtype({"args": {"Input type": types}}) == name


def test_an_event_without_arguments_has_neither():
    assert (shapes({}), dtype({})) == ("", "")
