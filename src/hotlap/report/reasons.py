"""Reasons of the guard and of the search in another language.

Facts hold them in English, as plain sentences. The English texts of the locale are their patterns, and the text of the
same key says them in another language; a sentence that no pattern knows stays as it is.
"""

from __future__ import annotations

import re
from functools import cache

from hotlap.report.locale import Phrases, texts

_FAMILY = "reason."
_FIELD = re.compile(r"\\\{([a-z0-9_]+)\\\}")


def translated(reason: str, say: Phrases) -> str:
    """The reason in the language of `say`."""
    for key, pattern in _patterns():
        found = pattern.fullmatch(reason)
        if found:
            return say(key, {name: _value(name, text, say) for name, text in found.groupdict().items()})
    return reason


def _value(name: str, text: str, say: Phrases) -> str:
    """A reason may hold another one, and the words of facts."""
    return translated(text, say) if name == "reason" else say.word(text)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Of all reasons, those that say the most first: a short one must not swallow a longer one."""
    known = {key: text for key, text in texts("en").items() if key.startswith(_FAMILY)}
    ordered = sorted(known.items(), key=lambda item: -len(_FIELD.sub("", re.escape(item[1]))))
    return tuple((key, re.compile(_FIELD.sub(r"(?P<\1>.+)", re.escape(text)))) for key, text in ordered)
