"""Every format that is found passes the conformance suite, and the suite finds what is wrong with one."""

from __future__ import annotations

import pytest

from hotlap.data.formats import all_formats
from hotlap.data.formats.flat import Flat
from hotlap.errors import HotlapError
from hotlap.testing.formats import check_format

TAKES = {"nemo": {"sound"}}


@pytest.mark.parametrize("name", sorted(all_formats()))
def test_a_format_gives_back_what_it_was_given(name, tmp_path):
    taken = set(check_format(all_formats()[name], tmp_path))
    assert taken == TAKES.get(name, {"sound", "windows", "sequences", "pictures", "values"})


def test_the_expected_formats_are_found():
    assert {"tar", "nemo", "flat", "parquet"} <= set(all_formats())
