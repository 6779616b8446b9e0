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
from hotlap.facts.experiment import ExperimentState
from hotlap.facts.rewrite import shown_setting
from hotlap.facts.timeline import Ending
from hotlap.report.locale import Phrases

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
    if view["verdict"] is None and view["ending"] == Ending.WINDOW:
        whole = Command(f"hotlap profile --full {typed(view['job'])}", "next.profile_full")
        offered.append(("profile", whole))
    elif view["verdict"] not in (None, HEALTHY):
        finding = view["findings"][0]
        offered += _applying(finding["fixes"], "measured_gain", view["job"])
        if finding["fixes"] and view["job"]["argv"]:
            offered.append(("tune", Command(f"hotlap tune {typed(view['job'])}", "next.tune")))
        offered.append(("explain", explain(finding)))
    else:
        faster = [each for each in view["experiments"] or () if each["state"] == ExperimentState.FASTER]
        offered += _applying(faster, "gain", view["job"])
    offered.append(("report", Command(f"hotlap report {shlex.quote(view['run_shown'])} --open", "next.open")))
    return [command for needed, command in offered if needed in commands]


def _applying(
    changes: Sequence[Mapping[str, Any]], gain: str, job: Mapping[str, Any]
) -> list[tuple[str, Command]]:
    """The command of the change that was measured to gain the most."""
    measured = [each for each in changes if (each[gain] or 0.0) > 0 and each["knob"] in _knobs()]
    best = max(measured, key=lambda each: float(each[gain]), default=None)
    command = apply_command(best, job) if best is not None else None
    return [("run", command)] if command is not None else []


def explain(finding: Mapping[str, Any]) -> Command:
    """Shows a cause's card."""
    return Command(f"hotlap explain {finding['cause']}", "next.explain")


def apply_command(
    fix: Mapping[str, Any], job: Mapping[str, Any], commands: Collection[str] = COMMANDS
) -> Command | None:
    """Applies a fix where that command and its knob exist, else shows what the setting does."""
    if fix["knob"] not in _knobs():
        return None
    if "run" in commands and job["argv"]:
        # What is set by name needs no `--allow`: that says what a preset may choose by itself.
        words = " ".join(f"--set {shlex.quote(setting)}" for setting in settings(fix))
        return Command(f"hotlap run {words} {typed(job)}", "next.run")
    if "knobs" in commands:
        return Command(f"hotlap knobs show {fix['knob']}", "next.knobs")
    return None


def settings(change: Mapping[str, Any]) -> list[str]:
    """A change as one types it behind `--set`, with what was switched together with it."""
    chosen = {change["knob"]: change["setting"], **change.get("beside", {})}
    return [shown_setting(knob, _typed_value(value)) for knob, value in chosen.items()]


def _typed_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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


# What was recognised in the user's source, in words: what is slow and why, the change, and what it was measured to
# bring.


MOST = 5  # in a report; all of them are in its JSON


@dataclass(frozen=True)
class ShownRewrite:
    """One pattern. `before` and `after` are the changed lines."""

    place: str
    sentence: str
    measured: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    diff: str


def shown_rewrites(view: Mapping[str, Any], say: Phrases) -> list[ShownRewrite]:
    """The largest share of the step first. Advice on switches, which was not measured, is in the JSON alone."""
    worth = [each for each in view.get("rewrites") or () if each["rewriting"] or each.get("cost") != "switch"]
    return [_one(each, say) for each in worth[:MOST]]


def lines(view: Mapping[str, Any], say: Phrases) -> list[tuple[str, str, str]]:
    """Hot lines without a known pattern: the place, the line itself, and what is known of it."""
    found = view.get("unmatched") or ()
    return [(f"{each['file']}:{each['line']}", each["code"], _known(each, say)) for each in found]


def _known(each: Mapping[str, Any], say: Phrases) -> str:
    deeper = each["inner"].rpartition(".")[2] != each["callee"].rpartition(".")[2]
    known = {
        "share": each["share"],
        "each": each["each_ms"],
        "item": each["item_ms"] if each["each_ms"] is None else None,
        "runs": each["runs"],
        "callee": each["callee"] or None,
        "inner": each["inner"] if each["inner"] and deeper else None,
        "seen": ", ".join(f"{name}: {value}" for name, value in each["values"].items()) or None,
    }
    return say("rewrite.unmatched", known)


def _one(each: Mapping[str, Any], say: Phrases) -> ShownRewrite:
    interval = each["interval"] or {}
    memory = each.get("cost") == "memory"
    tried = "memory" if memory else "untried" if each["gain"] is None else "measured"
    key = tried if each["rewriting"] or memory else "advice"
    measured = say(
        f"rewrite.is_{key}",
        share=each["share"],
        gain=each["gain"],
        low=interval.get("low"),
        high=interval.get("high"),
        numerics=say.word(each["rewriting"]["numerics"], "numerics") if each["rewriting"] else None,
    )
    return ShownRewrite(
        f"{each['file']}:{each['line']}",
        say(f"rewrite.{each['id']}", each["values"]),
        measured,
        tuple(each["before"]),
        tuple(each["after"]),
        each["diff"],
    )


def rewrites_closing(view: Mapping[str, Any], say: Phrases) -> str:
    """How the changes are had; nothing where none can be tried."""
    tries = any(each["rewriting"] is not None for each in view.get("rewrites") or ())
    return say("rewrite.patch", run=view["run_shown"]) if tries else ""
