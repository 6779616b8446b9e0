"""The errors that hotlap shows to a user: what happened, with the value, and one remedy."""

from __future__ import annotations

import re

MOST_SHOWN = 800  # characters of what happened, and of a remedy: a message stays below 2 KB
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """With every character that steers a terminal or reorders text shown as its escape: `\\x1b`, `\\u202e`.

    Names of scripts, keys of plans and texts of exceptions are others' words; only line breaks and tabs pass.
    """
    return _UNPRINTABLE.sub(_escape, text)


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """With its middle left out where it is longer than that."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 32 else f"\\u{code:04x}"


class HotlapError(Exception):
    """A fault that the user can mend. `exit_code` is what the command line returns."""

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = shortened(visible(what))
        self.remedy = shortened(visible(remedy))
        super().__init__(self.what)

    def __str__(self) -> str:
        return f"{self.what}\n  -> {self.remedy}" if self.remedy else self.what


class UsageError(HotlapError):
    """The command line asks for something that cannot be done."""


class FactError(HotlapError):
    """A stored fact (a run folder, a plan, a timeline) cannot be read."""


class JobError(HotlapError):
    """The job failed under hotlap but not without it."""

    exit_code = 3
