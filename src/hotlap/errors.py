"""The errors that hotlap shows to a user: what happened, with the value, and one remedy."""

from __future__ import annotations


class HotlapError(Exception):
    """A fault that the user can mend. `exit_code` is what the command line returns."""

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n  -> {self.remedy}" if self.remedy else self.what


class UsageError(HotlapError):
    """The command line asks for something that cannot be done."""


class FactError(HotlapError):
    """A stored fact (a run folder, a plan, a timeline) cannot be read."""


class JobError(HotlapError):
    """The job failed under hotlap but not without it."""

    exit_code = 3
