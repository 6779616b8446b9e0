"""What a knob may be set to: read from YAML or the command line, refused with the nearest valid spelling."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class NotAllowedError(ValueError):
    """A value that a knob does not take; `remedy` names one that it does."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class Values(ABC):
    """The settings of one knob. `read` turns what a plan says into a setting, `shown` says what is allowed."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """For messages and cards: `on, off`, `a whole number from 0 to 64`."""

    @abstractmethod
    def read(self, value: Any) -> Any:
        """The setting; raises NotAllowedError."""

    def refuse(self, value: Any, near: str = "") -> NotAllowedError:
        remedy = f"did you mean '{near}'?" if near else f"allowed: {self.shown}"
        return NotAllowedError(f"the value '{value}' is not allowed", remedy)


@dataclass(frozen=True)
class Choice(Values):
    """One of some words. YAML reads 32 as a number and `off` as False: both are taken for their words."""

    words: tuple[str, ...]
    also: Mapping[str, str] = field(default_factory=dict, hash=False)  # other spellings of some of them

    @property
    def shown(self) -> str:
        return ", ".join(self.words)

    def read(self, value: Any) -> str:
        text = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
        text = self.also.get(text, text)
        if text in self.words:
            return text
        raise self.refuse(value, next(iter(difflib.get_close_matches(text, self.words, n=1, cutoff=0.5)), ""))


@dataclass(frozen=True)
class Flag(Values):
    """On or off."""

    @property
    def shown(self) -> str:
        return "true, false"

    def read(self, value: Any) -> bool:
        words = {"true": True, "on": True, "yes": True, "1": True}
        words |= {"false": False, "off": False, "no": False, "0": False}
        found = words.get(str(value).lower())
        if found is None:
            raise self.refuse(value)
        return found


@dataclass(frozen=True)
class Whole(Values):
    """A whole number within bounds."""

    low: int
    high: int

    @property
    def shown(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: Any) -> int:
        try:
            number = int(str(value))
        except ValueError:
            raise self.refuse(value) from None
        if isinstance(value, bool) or not self.low <= number <= self.high:
            raise self.refuse(value)
        return number


@dataclass(frozen=True)
class Share(Values):
    """A part of a whole, above 0 and up to 1; `5%` is read too."""

    @property
    def shown(self) -> str:
        return "a share above 0 and up to 1, such as 0.1 or 10%"

    def read(self, value: Any) -> float:
        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            raise self.refuse(value) from None
        if isinstance(value, bool) or not 0.0 < share <= 1.0:
            raise self.refuse(value)
        return share
