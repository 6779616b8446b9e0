"""A recognised pattern in the user's source with the change that mends it, and its place in a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hotlap.facts.diagnosis import Interval


@dataclass(frozen=True)
class Rewriting:
    """One entry of a plan's `rewrites:`.

    `file` is relative to the job's folder where it lies below it. `at` are the positions of the expressions or
    statements, row and column from the beginning of the function, so that the function may move in its file. `hash` is
    of the function's source, `seen` what was seen at run time of the values that the pattern asked for.
    """

    id: str
    file: str
    line: int
    function: str
    at: tuple[str, ...]
    hash: str
    numerics: str
    seen: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """As settings of a plan are named: `sum-over-tensor@data.py:41`."""
        return f"{self.id}@{self.file}:{self.line}"

    @property
    def setting(self) -> str:
        """All that a training process needs to make the change: compact JSON."""
        plain: dict[str, Any] = {"function": self.function, "at": list(self.at), "hash": self.hash}
        plain |= {"numerics": self.numerics, "seen": dict(self.seen)}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, key: str, setting: Any) -> Rewriting:
        """From a setting of a plan; raises ValueError where it is none."""
        name, at, place = key.partition("@")
        file, colon, line = place.rpartition(":")
        try:
            plain = json.loads(setting)
            positions = tuple(str(each) for each in plain["at"])
            words = [str(plain[part]) for part in ("function", "hash", "numerics")]
            seen = {str(name): str(value) for name, value in plain.get("seen", {}).items()}
            number = int(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"'{setting}' describes no rewrite") from error
        if not (name and at and file and colon):
            raise ValueError(f"'{key}' names no rewrite")
        return cls(name, file, number, words[0], positions, words[1], words[2], seen)

    def listed(self) -> dict[str, Any]:
        """As plan.yaml lists it."""
        plain = asdict(self)
        return {**plain, "at": list(self.at), "seen": dict(self.seen)}


@dataclass(frozen=True)
class Recognised:
    """A pattern in the source of a run. Without a `rewriting` it is advice: nothing is tried.

    `share` is the part of a steady step that its lines hold. `values` fill the sentences of report/locale. `before`
    and `after` are the changed lines, `diff` is a unified diff. What costs memory alone has no share.
    """

    id: str
    file: str
    line: int
    function: str
    share: float
    rewriting: Rewriting | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    diff: str = ""
    feeds: bool = False  # it is in the code that makes batches
    gain: float | None = None
    interval: Interval | None = None
    cost: str = "time"  # or "waiting" for a device, "memory", "switch": what makes other lines slower


@dataclass(frozen=True)
class Unmatched:
    """A line that holds time and shows no known pattern, with what is known of it.

    `share` is of a steady step. `runs` is how often it ran to make one item, where the text and the sizes that
    were seen say so, and `each_ms` what it then took. `inner` is where the time was in what it called.
    """

    file: str
    line: int
    code: str
    share: float
    callee: str = ""
    inner: str = ""
    runs: float | None = None
    each_ms: float | None = None
    item_ms: float | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recognition:
    """All patterns that were recognised in a run, the largest share of the step first, and lines without one."""

    found: tuple[Recognised, ...] = ()
    others: tuple[Unmatched, ...] = ()


def is_rewrite(key: str) -> bool:
    """Whether a setting of a plan is a rewrite of the user's source; ids of knobs have no `@`."""
    return "@" in key


def shown_setting(key: str, setting: Any) -> str:
    """`knob=value`, and of a rewrite its key alone: where it is and what it is."""
    return key if is_rewrite(key) else f"{key}={setting}"
