"""A diagnosis in sentences: what holds the run back, the figures behind it, and what to change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from hotlap.facts.diagnosis import HEALTHY, Basis
from hotlap.facts.experiment import LEAST_GAIN, ExperimentState
from hotlap.facts.rewrite import shown_setting
from hotlap.facts.timeline import Ending, Stage
from hotlap.report import experiments
from hotlap.report.locale import Phrases, texts

_NAMELESS = re.compile(r"\.<(?:lambda|\w+comp|genexpr)>")
_LARGE = 0.1  # a gain: healthy jobs on a busy machine show smaller ones by chance
_SEVERAL = 3  # turns: fewer say nothing of what scatters
COMPUTING = (Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER)


def verdict(view: Mapping[str, Any], say: Phrases) -> str:
    """What holds the run back, with its share."""
    if view["verdict"] is None:
        return say("verdict.none")
    return _healthy_verdict(view, say) if view["verdict"] == HEALTHY else headline(first(view), say)


def _healthy_verdict(view: Mapping[str, Any], say: Phrases) -> str:
    """Where changes were tried, healthy is a measured result."""
    tried = experiments.tried(view)
    if not tried:
        ended = experiments.none_made(view)
        reason = translated(ended, say) if ended else say("experiments.off")
        return say("verdict.untried", reason=reason) if _unknown(view) else say("verdict.healthy")
    faster = experiments.of_state(view, ExperimentState.FASTER)
    undecided = len(experiments.of_state(view, ExperimentState.UNDECIDED))
    counts = {"count": len(tried), "least": LEAST_GAIN, "undecided": undecided}
    if faster:
        change = experiments.change(faster[0])
        return say("experiments.one_faster", counts, change=change, gain=faster[0]["gain"])
    if seems := _seems(view):
        return say("experiments.one_seems", counts | _interval(seems), change=experiments.change(seems))
    return say("experiments.some_undecided" if undecided else "experiments.none_faster", counts)


def _unknown(view: Mapping[str, Any]) -> bool:
    """Whether something was suspected, or was to be tried, and nothing was measured."""
    off = view["experiments"] is None and bool(view["untested"])
    return off or bool(experiments.none_made(view))


def _seems(view: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The change of which most was measured and nothing is sure, where that would be no small gain."""
    undecided = experiments.of_state(view, ExperimentState.UNDECIDED)
    return next((each for each in undecided if each["gain"] >= _LARGE and each["blocks"] >= _SEVERAL), None)


def _interval(tried: Mapping[str, Any]) -> dict[str, Any]:
    return {"gain": tried["gain"], **(tried["interval"] or {})}


def first(view: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The finding that the verdict names; None where it names none."""
    return None if view["verdict"] in (None, HEALTHY) else view["findings"][0]


def others(view: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The findings that the verdict does not name, in their order."""
    return list(view["findings"] if first(view) is None else view["findings"][1:])


def headline(finding: Mapping[str, Any] | None, say: Phrases) -> str:
    """A finding in one sentence, with what was measured; a cause that takes no part of a step has no figure."""
    assert finding is not None
    sentence, fix = say(f"verdict.{finding['cause']}"), measured_fix(finding)
    if fix is not None:
        return say("basis.experiment", _gain(fix), sentence=sentence, cause=finding["cause"])
    key = "basis.exposed" if finding["share"] else "verdict.without_share"
    return say(key, sentence=sentence, share=finding["share"], cause=finding["cause"])


def measured_fix(finding: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The setting whose experiment confirmed the finding, with the largest gain; None where time was measured."""
    fixes: list[Mapping[str, Any]] = finding["fixes"]
    measured = [each for each in fixes if each["measured_gain"] is not None]
    if finding["basis"] != Basis.EXPERIMENT or not measured:
        return None
    return max(measured, key=lambda each: float(each["measured_gain"]))


def advised(finding: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The settings to name as what to do: where one was measured to gain, none that was not."""
    fixes: list[Mapping[str, Any]] = finding["fixes"]
    gaining = [each for each in fixes if (each["measured_gain"] or 0.0) > 0]
    return gaining or fixes


def figure(finding: Mapping[str, Any], say: Phrases) -> str:
    """What was measured of a finding, in a few words; nothing where it takes no part of a step."""
    fix = measured_fix(finding)
    if fix is not None:
        return say("html.measured_with", _gain(fix))
    return say("html.at_most", share=finding["share"]) if finding["share"] else ""


def _gain(each: Mapping[str, Any]) -> dict[str, Any]:
    interval = each["interval"] or {}
    low, high = interval.get("low"), interval.get("high")
    setting = shown_setting(each["knob"], each["setting"])
    return {"gain": each["measured_gain"], "low": low, "high": high, "setting": setting}


def also(view: Mapping[str, Any], say: Phrases) -> str:
    """The causes of the other findings in one line, or nothing."""
    named = [_also_one(each, say) for each in others(view)]
    return say("verdict.also", findings=", ".join(named)) if named else ""


def _also_one(finding: Mapping[str, Any], say: Phrases) -> str:
    fix = measured_fix(finding)
    if fix is not None:
        return say("basis.also_experiment", cause=finding["cause"], gain=fix["measured_gain"])
    return say("basis.also_exposed", cause=finding["cause"], share=finding["share"] or None)


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
    if not view["verdict"]:
        return say("next.none" if view["ending"] == Ending.WINDOW else "next.too_short")
    if experiments.of_state(view, ExperimentState.FASTER):
        return say("next.faster")
    return say("next.untried" if _unknown(view) or _seems(view) else "next.healthy")


def fix(each: Mapping[str, Any], say: Phrases) -> str:
    """A setting in the words of the script, with its measured gain."""
    return say("next.fix", _gain(each), what=setting(each, say))


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


# Reasons of the guard and of the search in another language.
#
# Facts hold them in English, as plain sentences. The English texts of the locale are their patterns, and the
# text of the same key says them in another language; a sentence that no pattern knows stays as it is.


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
