"""Numbers as people read them."""

from __future__ import annotations

import random
import re

import pytest

from hotlap.units import duration, flops, rate, share, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 us"),
        (0.0000421, "42 us"),
        (0.0009994, "999 us"),
        (0.0009996, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.1234, "123 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (75, "1 min 15 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7320, "2 h 2 min"),
        (-0.0123, "-12.3 ms"),
        (-75, "-1 min 15 s"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_no_duration_below_a_minute_has_more_than_three_digits():
    draw = random.Random(0)
    for _ in range(5000):
        text = duration(10 ** draw.uniform(-7, 1.77))
        assert sum(character.isdigit() for character in text.partition("min")[0]) <= 3, text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (5 << 20, "5.00 MiB"),
        (3 << 40, "3.00 TiB"),
        (7 << 50, "7168 TiB"),
    ],
)
def test_sizes(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.004, "0.4 %"),
        (0.0999, "10.0 %"),
        (0.714, "71 %"),
        (1, "100 %"),
        (-0.05, "-5.0 %"),
        (1.5, "150 %"),
    ],
)
def test_shares(fraction, text):
    assert share(fraction) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (0, "0.00"),
        (3.14159, "3.14"),
        (999.4, "999"),
        (999.6, "1,000"),
        (12345.6, "12,300"),
        (-2500, "-2,500"),
    ],
)
def test_rates(per_second, text):
    assert rate(per_second) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (12, "12.0 FLOP"),
        (1e3, "1.00 kFLOP"),
        (999.7e9, "1.00 TFLOP"),
        (2.5e12, "2.50 TFLOP"),
        (4e18, "4000 PFLOP"),
    ],
)
def test_flops(count, text):
    assert flops(count) == text


def test_every_text_has_a_number_first():
    for text in (duration(3), size(3), share(0.3), rate(3)):
        assert re.match(r"-?\d", text)
