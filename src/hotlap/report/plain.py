"""Values of others made safe to write: text with control characters, numbers that JSON does not know."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

# Characters that end a line for some reader, or that turn the direction of what follows them.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """The text on one line, with every control character written out (`\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\t":
        return "    "
    if unicodedata.category(character) in _CATEGORIES:
        return character.encode("unicode_escape").decode("ascii")
    return character


def finite(plain: Any) -> Any:
    """Plain data with None for numbers that are not finite: they were not measured, and JSON lacks them."""
    if isinstance(plain, dict):
        return {key: finite(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [finite(value) for value in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
