"""Numbers as people read them: times, sizes, shares and rates, in at most three digits."""

from __future__ import annotations

import math

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def duration(seconds: float) -> str:
    """`0.0000421` -> `42 us`, `0.0123` -> `12.3 ms`, `75` -> `1 min 15 s`."""
    if not math.isfinite(seconds):
        return str(seconds)
    magnitude, sign = abs(seconds), "-" if seconds < 0 else ""
    if magnitude < 0.9995e-3:
        return f"{seconds * 1e6:.0f} us"
    if magnitude < 0.9995:
        return f"{_three_digits(seconds * 1e3)} ms"
    if magnitude < 59.95:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(magnitude), 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes} min"


def size(count: float) -> str:
    """Bytes in powers of 1024: `1536` -> `1.50 KiB`."""
    if not math.isfinite(count):
        return str(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{_three_digits(count)} {unit}"
        count /= 1024
    return f"{_three_digits(count)} TiB"


def flops(count: float) -> str:
    """Floating-point operations in powers of 1000: `2.5e12` -> `2.50 TFLOP`."""
    if not math.isfinite(count):
        return str(count)
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"):
        if abs(count) < 999.5:
            return f"{_three_digits(count)} {unit}"
        count /= 1000
    return f"{_three_digits(count)} PFLOP"


def share(fraction: float) -> str:
    """`0.714` -> `71 %`; small shares keep a digit, so that 0.4 % is not shown as nothing."""
    percent = fraction * 100
    if percent and abs(percent) < 10:
        return f"{percent:.1f} %"
    return f"{percent:.0f} %"


def rate(per_second: float) -> str:
    """`12345.6` -> `12,300`, `3.14159` -> `3.14`."""
    if not math.isfinite(per_second):
        return str(per_second)
    if abs(per_second) < 999.5:
        return _three_digits(per_second)
    step = 10 ** (len(str(round(abs(per_second)))) - 3)
    return f"{round(per_second / step) * step:,.0f}"


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.0f}" if magnitude >= 99.95 else f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"
