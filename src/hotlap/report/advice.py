"""The commands that a report tells the user to type: only those that this hotlap has."""

from __future__ import annotations

import pkgutil
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from hotlap import knobs
from hotlap.facts.diagnosis import HEALTHY

# The one place to name a command once it exists: `tune` is then offered by itself.
COMMANDS = (
    "profile", "report", "diagnose", "explain", "diff", "doctor", "knobs", "plan", "run", "tune", "compare",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A line to type, and the key of the words that say what for."""

    line: str
    purpose: str


def next_commands(view: Mapping[str, Any], commands: Collection[str] = COMMANDS) -> list[Command]:
    """What to type after reading the report."""
    offered: list[tuple[str, Command]] = []
    if view["verdict"] is None:
        whole = Command(f"hotlap profile --full {typed(view['job'])}", "next.profile_full")
        offered.append(("profile", whole))
    elif view["verdict"] != HEALTHY:
        finding = view["findings"][0]
        if finding["fixes"]:
            offered.append(("tune", Command(f"hotlap tune {typed(view['job'])}", "next.tune")))
        offered.append(("explain", explain(finding)))
    offered.append(("report", Command(f"hotlap report {shlex.quote(view['run_shown'])} --open", "next.open")))
    return [command for needed, command in offered if needed in commands]


def explain(finding: Mapping[str, Any]) -> Command:
    """Shows a cause's card."""
    return Command(f"hotlap explain {finding['cause']}", "next.explain")


def apply_command(
    fix: Mapping[str, Any], job: Mapping[str, Any], commands: Collection[str] = COMMANDS
) -> Command | None:
    """Applies a fix where that command and its knob exist, else shows what the setting does."""
    if fix["knob"] not in _knobs():
        return None
    if "run" in commands:
        setting = shlex.quote(f"{fix['knob']}={fix['setting']}")
        return Command(f"hotlap run --set {setting} {typed(job)}", "next.run")
    if "knobs" in commands:
        return Command(f"hotlap knobs show {fix['knob']}", "next.knobs")
    return None


def _knobs() -> set[str]:
    """Ids of the knobs that this hotlap has: one file each, so their names are enough."""
    return {info.name.replace("_", "-") for info in pkgutil.iter_modules(knobs.__path__)}


def typed(job: Mapping[str, Any]) -> str:
    """The job as one types it behind `hotlap profile`: a script or `-m module`, any launcher behind `--`."""
    words: Sequence[str] = job["argv"]
    if words and PurePath(words[0]).name.startswith("python"):
        rest = words[1:]
        if rest and (rest[0] == "-m" or not rest[0].startswith("-")):
            return shlex.join(rest)
    return f"-- {shlex.join(words)}"
