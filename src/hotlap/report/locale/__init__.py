"""The words of a report, one file per language with the same keys.

A text holds places to fill: `{key}` as it is, or with how it is written: `{key:share}`, `{key:ms}` and the
others of `WRITTEN`; `{key:word}` and `{key:stage}` are looked up as `word.<value>` and `stage.<value>` in the
same language; `{key?step|steps}` is the first word where the value is 1, else the second. A part in
`[[double brackets]]` is left away where one of its values was not measured; outside of brackets such a value
is written as "not measured".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hotlap import units
from hotlap.errors import UsageError

FOLDER = Path(__file__).parent
LANGUAGES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))

WRITTEN: Mapping[str, Callable[[float], str]] = {
    "": lambda value: f"{value:.4g}",
    "cores": lambda value: f"{value:.2f}",
    "count": lambda value: f"{value:,.0f}",
    "flops": units.flops,
    "gain": lambda value: f"{round(value * 100):+,d} %",
    "mib": lambda value: units.size(value * 2**20),
    "ms": lambda value: units.duration(value / 1e3),
    "percent": lambda value: f"{round(value * 100):,d}",
    "rate": units.rate,
    "s": units.duration,
    "share": lambda value: "<0.1 %" if 0 < abs(value) < 0.0005 else units.share(value),
    "size": units.size,
    "times": lambda value: f"{value:.2f}x",
    "us": lambda value: units.duration(value / 1e6),
}

LOOKED_UP = ("word", "stage")

_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_FIELD = re.compile(r"\{([a-z0-9_]+)(?::([a-z]+))?\}")
_PLURAL = re.compile(r"\{([a-z0-9_]+)\?([^|{}]*)\|([^|{}]*)\}")


class Phrases:
    """The texts of one language. Called with a key and the values that fill it."""

    def __init__(self, lang: str = "en") -> None:
        self.lang = lang
        self._texts = texts(lang)

    def __call__(self, key: str, values: Mapping[str, Any] | None = None, **more: Any) -> str:
        return self._fill(self._texts[key], {**(values or {}), **more})

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def number(self, value: float | None, written: str) -> str:
        """A number as `written` says, or "not measured"."""
        return self._write(value, written)

    def word(self, value: Any, family: str = "word") -> str:
        """A fact's word in this language, or as it is where the language has none for it."""
        return self._texts.get(f"{family}.{value}", str(value))

    def _fill(self, text: str, values: Mapping[str, Any]) -> str:
        def optional(match: re.Match[str]) -> str:
            return match[1] if all(not _absent(values.get(name)) for name in fields(match[1])) else ""

        def one(match: re.Match[str]) -> str:
            return self._write(values.get(match[1]), match[2] or "")

        def plural(match: re.Match[str]) -> str:
            return match[2] if values.get(match[1]) == 1 else match[3]

        return _FIELD.sub(one, _PLURAL.sub(plural, _OPTIONAL.sub(optional, text)))

    def _write(self, value: Any, written: str) -> str:
        if _absent(value):
            return self._texts["not_measured"]
        if written in LOOKED_UP:
            return self.word(value, written)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return WRITTEN[written](value)
        return str(value)


@cache
def texts(lang: str) -> Mapping[str, str]:
    """All texts of a language, by key."""
    if lang not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise UsageError(f"there is no report in the language '{lang}'.", f"known are: {known}")
    import yaml

    # The parser in C reads the file in a few ms; the one in Python takes a noticeable part of a second.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load((FOLDER / f"{lang}.yaml").read_text(encoding="utf-8"), Loader=loader))


def fields(text: str) -> set[str]:
    """The names of the values that a text asks for."""
    return {match[1] for match in _FIELD.finditer(text)}


def _absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and not math.isfinite(value))
