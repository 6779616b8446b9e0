"""A search for a plan in words and tables: verdict, guard, why and next; what was kept, what was not, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.facts.rates import TOKENS
from hotlap.facts.timeline import Stage
from hotlap.report.advice import typed
from hotlap.report.document import Column, Document, Kind, Point, Section, Strip, Table
from hotlap.report.locale import Phrases
from hotlap.report.reasons import translated
from hotlap.report.sections.time import stage_name

View = Mapping[str, Any]
TONES = {"same": "good", "different": "critical"}
_LEAST_MS = 0.0005  # a stage that would be shown as nothing, before and after, has no row


def document(view: View, say: Phrases) -> Document:
    """The whole outcome."""
    sections = (_ablation(view, say), _rejected(view, say), _stages(view, say), _trials(view, say))
    return Document(
        title=say("tuned.title", name=view["job"]["name"]),
        command=view["command"],
        tone=_tone(view),
        points=(
            Point(say("heading.verdict"), (_verdict(view, say),)),
            Point(say("heading.guard"), (_guard(view, say),)),
            Point(say("heading.why"), _why(view, say)),
            Point(say("heading.next"), (), _commands(view)),
        ),
        sections=tuple(each for each in sections if each is not None),
        closing=(say("tuned.host", host=view["host"]["named"]), say("tuned.folder", run=view["run_shown"])),
        figures=_figures(view, say),
        strips=_strips(view, say),
    )


def _tone(view: View) -> str:
    guard = view["guard"]
    return TONES.get(guard["sameness"], "warning") if guard else "none"


def _verdict(view: View, say: Phrases) -> str:
    rates, gain = view["throughput"], view["gain"]
    if not view["plan"]["settings"]:
        return say("tuned.nothing", rates)
    if gain is None:
        return say("tuned.unproved", rates)
    low, high = (1.0 + gain["interval"][end] for end in ("low", "high"))
    return say("tuned.faster", rates, times=1.0 + gain["value"], low=low, high=high)


def _guard(view: View, say: Phrases) -> str:
    guard = view["guard"]
    if guard is None:
        return say("tuned.unguarded" if view["plan"]["settings"] else "tuned.no_guard")
    return say("tuned.guard", sameness=guard["sameness"], reason=translated(guard["reason"], say))


def _why(view: View, say: Phrases) -> tuple[str, ...]:
    spent = [say("tuned.spent", view, ended=translated(view["ended"], say))]
    if view["throughput"]["counts"] == TOKENS:
        spent.append(say("tuned.tokens"))
    before, after = view["baseline"], view["tuned"]
    if not view["plan"]["settings"] or after is None:
        return tuple(spent)
    waits = say(
        "tuned.waits",
        before=before["data_ms"],
        after=after["data_ms"],
        step_before=before["step_ms"],
        step_after=after["step_ms"],
    )
    return (waits, *spent)


def _commands(view: View) -> tuple[str, ...]:
    job, folder = typed(view["job"]), view["run_shown"]
    if not view["plan"]["settings"]:
        return (f"hotlap profile {job}",)
    return (f"hotlap run --plan {folder}/plan.yaml {job}", f"hotlap report {folder} --open")


def _ablation(view: View, say: Phrases) -> Section | None:
    kept, together = view["ablation"]["settings"], view["ablation"]["together"]
    if not kept:
        return None
    names = ("setting", "predicted", "in_order", "alone", "promise")
    rows = [
        (
            setting(each),
            share(each["predicted"]),
            gain(each["gain"]),
            gain(each["alone"]),
            promise(each["promise"]),
        )
        for each in kept
    ]
    rows.append((say("tuned.together"), share(together["predicted"]), gain(together["gain"]), "", ""))
    paid = [
        say("tuned.break_even", setting=setting(each), steps=each["break_even_steps"])
        for each in kept
        if each["break_even_steps"]
    ]
    brought = [
        say("tuned.brought", setting=setting(each), brought=also)
        for each in kept
        if (also := _brought(each, view["plan"]["settings"]))
    ]
    ways = [
        say(f"tuned.{way}", settings=", ".join(named))
        for way in ("live", "beside_all", "unasked")
        if (named := [setting(each) for each in kept if _measured(each) == way])
    ]
    return Section(
        "ablation",
        say("section.ablation"),
        (),
        Table(_columns(names, say), tuple(rows)),
        (*brought, *paid, say("tuned.notes"), *ways, say("tuned.promise")),
    )


def _measured(each: View) -> str:
    """How the gain of a kept setting was found, where it was not by a duel of its own with the plan above it."""
    if each["gain"] is None:
        return "unasked"
    return "live" if each["live"] else "beside_all" if each["beside_all"] else ""


def _brought(each: View, standing: View) -> str:
    """What came into the plan with a setting, as the rate with a batch."""
    return ", ".join(f"{knob}={value}" for knob, value in each["beside"].items() if knob in standing)


def _rejected(view: View, say: Phrases) -> Section | None:
    rows = tuple(
        (
            setting(each),
            share(each["predicted"]),
            gain(each["gain"]),
            promise(each["promise"]),
            translated(each["reason"], say),
        )
        for each in view["rejected"]
    )
    names = ("setting", "predicted", "measured", "promise", "reason")
    table = Table((*_columns(names[:-1], say), Column(say("column.reason"))), rows)
    return Section("rejected", say("section.rejected"), (), table) if rows else None


def _stages(view: View, say: Phrases) -> Section | None:
    before, after = view["stages"]["before"], view["stages"]["after"]
    if before is None or after is None:
        return None
    named = [
        stage.value
        for stage in Stage
        if max(side.get(stage.value) or 0.0 for side in (before, after)) >= _LEAST_MS
    ]
    rows = tuple(
        (stage_name(name, say), *(say.number(side.get(name) or 0.0, "ms") for side in (before, after)))
        for name in named
    )
    total = tuple(say.number(sum(side.values()), "ms") for side in (before, after))
    columns = (
        Column(say("column.stage")),
        *(Column(say(f"column.{name}"), Kind.NUMBER) for name in ("before", "after")),
    )
    colours = (*(f"stage-{name}" for name in named), "line")
    table = Table(columns, (*rows, (say("column.step"), *total)), colours)
    return Section("before_after", say("section.before_after"), (), table)


def _trials(view: View, say: Phrases) -> Section | None:
    rates = [each["throughput"] for each in view["ledger"] if each["throughput"]]
    if not rates:
        return None
    rows = tuple(
        (
            str(each["number"]),
            settings(each["settings"], say),
            (each["throughput"] or 0.0) / max(rates),
            say.number(each["throughput"], "rate") if each["throughput"] else say.word(each["status"]),
            say.number(each["step_ms"], "ms") if each["step_ms"] else "-",
            say.number(each["seconds"], "s"),
        )
        for each in view["ledger"]
    )
    columns = (
        Column(say("column.trial"), Kind.NUMBER),
        Column(say("column.setting"), Kind.CODE),
        Column("", Kind.BAR),
        Column(f"{say.word(view['throughput']['counts'])}/s", Kind.NUMBER),
        Column(say("column.step"), Kind.NUMBER),
        Column(say("column.took"), Kind.NUMBER),
    )
    return Section("trials", say("section.trials"), (), Table(columns, rows))


def _figures(view: View, say: Phrases) -> tuple[tuple[str, str], ...]:
    rates, gain, guard = view["throughput"], view["gain"], view["guard"]
    before, after = view["baseline"], view["tuned"] if view["plan"]["settings"] else None
    found = [
        (say.number(1.0 + gain["value"], "times"), say("tuned.figure_ratio")) if gain else None,
        (say.number(rates["before"], "rate"), say("tuned.figure_before", rates)),
        (say.number(rates["after"], "rate"), say("tuned.figure_after", rates)) if after else None,
        (say.number(before["data_ms"], "ms"), say("tuned.figure_wait_before")),
        (say.number(after["data_ms"], "ms"), say("tuned.figure_wait_after")) if after else None,
        (say.number((after or before)["memory_bytes"], "size"), say("tuned.figure_memory")),
        (say.number(view["trials"], "count"), say("tuned.figure_trials", view)),
        (say.word(guard["sameness"]), say("tuned.figure_guard")) if guard else None,
    ]
    return tuple(each for each in found if each is not None)


def _strips(view: View, say: Phrases) -> tuple[Strip, ...]:
    """A step before and after, as long as it took."""
    sides = [(name, view["stages"][name]) for name in ("before", "after") if view["stages"][name]]
    longest = max((sum(stages.values()) for _, stages in sides), default=0.0)
    return tuple(
        Strip(
            say("tuned.step", name=say(f"column.{name}"), ms=sum(stages.values())),
            sum(stages.values()) / longest,
            tuple(
                (f"stage-{stage}", stage_name(stage, say), ms / sum(stages.values()))
                for stage, ms in stages.items()
                if ms
            ),
        )
        for name, stages in sides
        if longest
    )


def _columns(names: tuple[str, ...], say: Phrases) -> tuple[Column, ...]:
    return tuple(
        Column(say(f"column.{name}"), Kind.CODE if name == "setting" else Kind.NUMBER) for name in names
    )


def setting(each: View) -> str:
    """As one types it behind `--set`."""
    return f"{each['knob']}={each['setting']}"


def settings(chosen: View, say: Phrases) -> str:
    """All settings of a trial."""
    return ", ".join(f"{knob}={value}" for knob, value in chosen.items()) or say("tuned.script")


def share(value: float | None) -> str:
    """A gain without its interval."""
    return "-" if value is None else f"{value * 100:+.0f} %"


def gain(measured: View | None) -> str:
    """A gain with its interval."""
    if measured is None:
        return "-"
    interval = measured["interval"]
    return f"{share(measured['value'])} ({interval['low'] * 100:+.0f}..{interval['high'] * 100:+.0f})"


def promise(promised: Any) -> str:
    """What guides promise, as a range."""
    return f"{promised[0] * 100:+.0f}..{promised[1] * 100:+.0f} %" if promised else "-"
