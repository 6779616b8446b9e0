"""Every changed byte changes the sum of a part; how it was cut while it was written does not."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from hotlap.data.cache import build
from hotlap.data.cache.build import AT_ONCE, PAGE, Checksum, checksum_of

SIZES = (0, 1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE + 7, AT_ONCE, AT_ONCE + 3 * PAGE + 1)


def sum_of(content):
    found = Checksum()
    found.add(content)
    return found.told()


@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_same_however_the_content_is_cut(size, tmp_path):
    chance = random.Random(size)
    content = chance.randbytes(size)
    found, rest = Checksum(), content
    while rest:
        count = chance.choice((1, 100, PAGE - 1, PAGE, 3 * PAGE + 5, AT_ONCE))
        found.add(rest[:count])
        rest = rest[count:]
    (tmp_path / "part").write_bytes(content)
    assert found.told() == sum_of(content) == checksum_of(tmp_path / "part")
    assert found.told()[0] == size


@pytest.mark.parametrize("size", SIZES[1:])
def test_a_flipped_bit_anywhere_is_found(size):
    chance = random.Random(size)
    content = bytearray(chance.randbytes(size))
    known = sum_of(content)
    for at in {0, size - 1, size // 2, *(chance.randrange(size) for _ in range(50))}:
        for bit in (0, 7):
            content[at] ^= 1 << bit
            assert sum_of(content) != known, at
            content[at] ^= 1 << bit
    assert sum_of(content) == known


@pytest.mark.parametrize("value", [0.5, 1.0, 2.0, -2.0, 1e300])
def test_pages_of_one_value_that_were_lost_or_changed_places_are_found(value):
    """Sums of whole words would wrap round to nothing: 512 times the double 2.0 is 2**71."""
    rows = np.full((8, PAGE // 8), value)
    rows[5:] = np.arange(PAGE // 8)
    known = sum_of(rows)
    zeroed, half, swapped = rows.copy(), rows.copy(), rows[[0, 1, 2, 3, 5, 4, 6, 7]]
    zeroed[2] = 0.0
    half[3, ::2] = 0.0
    assert known not in [sum_of(np.ascontiguousarray(each)) for each in (zeroed, half, swapped, rows[:7])]


def test_what_is_no_array_of_bytes_counts_by_its_bytes():
    values = np.arange(3000, dtype=np.float32)
    assert sum_of(values) == sum_of(values.tobytes())


@pytest.mark.parametrize("size", [0, 1, PAGE, 2 * AT_ONCE, 4 * AT_ONCE, 5 * AT_ONCE + 3 * PAGE + 7])
def test_spans_that_threads_read_add_up_to_the_whole(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "SPAN", 2 * AT_ONCE)
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "part").write_bytes(content)
    assert checksum_of(tmp_path / "part") == sum_of(content)
