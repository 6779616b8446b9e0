"""A diagnosis in sentences: what holds the run back, the figures behind it, and what to change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hotlap.facts.diagnosis import HEALTHY
from hotlap.facts.timeline import Stage
from hotlap.report.locale import Phrases

_NAMELESS = re.compile(r"\.<(?:lambda|\w+comp|genexpr)>")
COMPUTING = (Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER)


def verdict(view: Mapping[str, Any], say: Phrases) -> str:
    """What holds the run back, with its share."""
    if view["verdict"] is None:
        return say("verdict.none")
    return say("verdict.healthy") if view["verdict"] == HEALTHY else headline(first(view), say)


def first(view: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The finding that the verdict names; None where it names none."""
    return None if view["verdict"] in (None, HEALTHY) else view["findings"][0]


def others(view: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The findings that the verdict does not name, in their order."""
    return list(view["findings"] if first(view) is None else view["findings"][1:])


def headline(finding: Mapping[str, Any] | None, say: Phrases) -> str:
    """A finding in one sentence; a cause that takes no part of a step is named without a share."""
    assert finding is not None
    sentence = say(f"verdict.{finding['cause']}")
    key = "verdict.with_share" if finding["share"] else "verdict.without_share"
    return say(key, sentence=sentence, share=finding["share"], cause=finding["cause"])


def also(view: Mapping[str, Any], say: Phrases) -> str:
    """The causes of the other findings in one line, or nothing."""
    named = [
        say("verdict.also_one", cause=each["cause"], share=each["share"] or None) for each in others(view)
    ]
    return say("verdict.also", findings=", ".join(named)) if named else ""


def why(view: Mapping[str, Any], say: Phrases) -> list[str]:
    """The figures behind the verdict."""
    if view["verdict"] is None:
        return [say("why.none", steps=view["step"]["seen"])]
    finding = first(view)
    reason = _healthy(view, say) if finding is None else evidence(finding, say)
    cpu = view["cpu"]
    disturbed = [say("why.disturbed", cpu)] if cpu is not None and cpu["disturbed"] else []
    return [reason, step_figures(view, say), *disturbed]


def _healthy(view: Mapping[str, Any], say: Phrases) -> str:
    stages = view["stages"]
    compute = sum(stages[stage]["share"] for stage in COMPUTING if stage in stages)
    return say("why.healthy", compute=compute, data=stages.get("data", {}).get("share") or None)


def step_figures(view: Mapping[str, Any], say: Phrases) -> str:
    """Step time and throughput in one sentence."""
    step = view["step"]
    figures = {**view["throughput"], "steps": step["n"], "median": step["ms_median"], "p95": step["ms_p95"]}
    return say("why.figures", figures)


def evidence(finding: Mapping[str, Any], say: Phrases) -> str:
    """The figures behind one finding."""
    return say(f"why.{finding['cause']}", finding["evidence"])


def where(finding: Mapping[str, Any], say: Phrases) -> str:
    """The finding's line, or nothing."""
    place = finding["where"]
    if place is None:
        return ""
    return say("why.where", place=place["shown"], function=readable(place["function"]))


def readable(function: str) -> str:
    """A function as its author calls it: `Windows.load` for `Windows.load.<locals>.<listcomp>`."""
    named = _NAMELESS.sub("", function.replace(".<locals>", ""))
    return "" if named == "<module>" else named


def what_to_do(finding: Mapping[str, Any], say: Phrases) -> str:
    """What to change, in one sentence."""
    return say(f"todo.{finding['cause']}", finding["evidence"])


def next_step(view: Mapping[str, Any], say: Phrases) -> str:
    """What to change first, or that nothing needs to change."""
    finding = first(view)
    if finding is not None:
        return what_to_do(finding, say)
    return say("next.healthy" if view["verdict"] else "next.none")


def fix(each: Mapping[str, Any], say: Phrases) -> str:
    """A setting in the words of the script, with the gain that is predicted for it."""
    interval = each["interval"] or {}
    gain = {"gain": each["predicted_gain"], "low": interval.get("low"), "high": interval.get("high")}
    return say("next.fix", gain, what=setting(each, say))


def setting(each: Mapping[str, Any], say: Phrases) -> str:
    """A setting in the words of the script."""
    key = f"knob.{each['knob']}"
    return say(key if key in say else "knob.unknown", each)


def ending(view: Mapping[str, Any], say: Phrases) -> str:
    """How the job came to its end."""
    return say(f"ending.{view['ending']}")


def faults(view: Mapping[str, Any], say: Phrases) -> str:
    """What the probe could not do, or nothing."""
    seen = view["probe"]["faults"]
    return say("footer.faults", count=len(seen), first=seen[0]) if seen else ""
