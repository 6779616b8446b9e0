"""The plain data of a search for a plan: what `hotlap tune --json` prints and what every renderer draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from hotlap.facts import codec
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.rewrite import shown_setting
from hotlap.facts.timeline import Stage
from hotlap.facts.trial import TOKENS, Figures, Status, Trial, counted, knows
from hotlap.facts.verdict import KnobVerdict, Ruling, Tuning
from hotlap.report.advice import typed
from hotlap.report.document import ColumnKind, Document, Point, Section, Strip, Table, TableColumn, finite
from hotlap.report.locale import Phrases
from hotlap.report.sections.time import stage_name
from hotlap.report.view import from_here
from hotlap.report.words import translated

KIND = "tuning"


@dataclass(frozen=True)
class Searched:
    """A search with all that its folder holds of it."""

    tuning: Tuning
    job: Job
    host: Host
    folder: str
    trials: Sequence[Trial] = ()


def tuning_view(searched: Searched) -> dict[str, Any]:
    """All facts of the search, with the ablation and the reasons put together of them."""
    tuning, trials = searched.tuning, searched.trials
    plain: dict[str, Any] = codec.to_plain(tuning)
    view = {
        "schema": codec.SCHEMA,
        "kind": KIND,
        "run": searched.folder,
        "run_shown": from_here(searched.folder),
        "job": {**codec.to_plain(searched.job), "shown": searched.job.shown},
        "command": searched.job.shown,
        "host": {**codec.to_plain(searched.host), "named": searched.host.named},
        **plain,
        "throughput": _throughput(tuning, trials),
        "ablation": _ablation(tuning),
        "rejected": [codec.to_plain(each) for each in _rejected(tuning.verdicts)],
        "stages": {
            "before": _stages(trials, {}),
            "after": _stages(trials, tuning.plan.settings) if tuning.plan.settings else None,
        },
        "ledger": [_trial(each, tuning.baseline.counts) for each in trials],
    }
    return cast(dict[str, Any], finite(view))


def _throughput(tuning: Tuning, trials: Sequence[Trial]) -> dict[str, Any]:
    """Medians over all trials of the baseline and of the plan; of the one that is known where there is no ledger."""
    after = tuning.tuned if tuning.plan.settings else None
    return {
        "counts": tuning.baseline.counts,
        "before": _middle(trials, {}, tuning.baseline),
        "after": _middle(trials, tuning.plan.settings, after) if after else None,
    }


def _middle(trials: Sequence[Trial], settings: Mapping[str, Any], known: Figures) -> float:
    rates = [_rate(each.figures, known.counts) for each in _finished(trials, settings)]
    return median([rate for rate in rates if rate is not None] or [known.throughput])


def _rate(figures: Figures | None, counts: str) -> float | None:
    """None where nothing was measured, or not in this count."""
    return counted(figures, counts).throughput if figures and knows(figures, counts) else None


def _finished(trials: Sequence[Trial], settings: Mapping[str, Any]) -> Iterable[Trial]:
    return (
        each for each in trials if each.status is Status.DONE and dict(each.plan.settings) == dict(settings)
    )


def _ablation(tuning: Tuning) -> dict[str, Any]:
    """Each kept setting in the order in which it was accepted, alone, and all together."""
    kept = [each for each in _last(tuning.verdicts) if each.ruling is Ruling.KEEP]
    return {
        "settings": [{**codec.to_plain(each), "alone": _alone(each, tuning)} for each in kept],
        "together": {"gain": codec.to_plain(tuning.gain)},
    }


def _alone(verdict: KnobVerdict, tuning: Tuning) -> Any:
    """The first setting was accepted with none beside it but those that it brought: that is its trial alone."""
    settings, own = tuning.plan.settings, {verdict.knob, *verdict.beside}
    if verdict.knob in settings and settings.keys() <= own:
        return codec.to_plain(verdict.gain)
    holds = settings.get(verdict.knob) == verdict.setting
    return codec.to_plain(tuning.alone.get(verdict.knob)) if holds else None


def _rejected(verdicts: Sequence[KnobVerdict]) -> list[KnobVerdict]:
    return [each for each in _last(verdicts) if each.ruling is not Ruling.KEEP]


def _last(verdicts: Sequence[KnobVerdict]) -> list[KnobVerdict]:
    """One for each setting: what was tried again, beside others, counts by its last verdict."""
    return list({(each.knob, str(each.setting)): each for each in verdicts}.values())


def _stages(trials: Sequence[Trial], settings: Mapping[str, Any]) -> dict[str, float] | None:
    """Exposed ms a step by stage, medians over the trials of these settings; None where no trial tells."""
    seen = [each.stages for each in _finished(trials, settings) if each.stages]
    if not seen:
        return None
    return {stage: median(each.get(stage, 0.0) for each in seen) for stage in seen[0]}


def _trial(trial: Trial, counts: str) -> dict[str, Any]:
    figures = trial.figures
    return {
        "number": trial.number,
        "settings": codec.to_plain(trial.plan.settings),
        "status": trial.status.value,
        "seconds": trial.seconds,
        "throughput": _rate(figures, counts),
        "step_ms": figures.step_ms if figures else None,
        "reason": trial.reason,
    }


# A search for a plan in words and tables: verdict, guard, why and next; what was kept, what was not, and why.


View = Mapping[str, Any]
TONES = {"same": "good", "different": "critical"}
_LEAST_MS = 0.0005  # a stage that would be shown as nothing, before and after, has no row


def document(view: View, say: Phrases) -> Document:
    """The whole outcome."""
    sections = (
        _drawn_ablation(view, say),
        _drawn_rejected(view, say),
        _drawn_stages(view, say),
        _trials(view, say),
    )
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


def _drawn_ablation(view: View, say: Phrases) -> Section | None:
    kept, together = view["ablation"]["settings"], view["ablation"]["together"]
    if not kept:
        return None
    names = ("setting", "in_order", "alone", "promise")
    rows = [
        (setting(each), gain(each["gain"]), gain(each["alone"]), promise(each["promise"])) for each in kept
    ]
    rows.append((say("tuned.together"), gain(together["gain"]), "", ""))
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
    live = [setting(each) for each in kept if each["live"]]
    ways = [say("tuned.live", settings=", ".join(live))] if live else []
    return Section(
        "ablation",
        say("section.ablation"),
        (),
        Table(_columns(names, say), tuple(rows)),
        (*brought, *paid, say("tuned.notes"), *ways, say("tuned.promise")),
    )


def _brought(each: View, standing: View) -> str:
    """What came into the plan with a setting, as the rate with a batch."""
    return ", ".join(shown_setting(*pair) for pair in each["beside"].items() if pair[0] in standing)


def _drawn_rejected(view: View, say: Phrases) -> Section | None:
    rows = tuple(
        (setting(each), gain(each["gain"]), promise(each["promise"]), translated(each["reason"], say))
        for each in view["rejected"]
    )
    names = ("setting", "measured", "promise", "reason")
    table = Table((*_columns(names[:-1], say), TableColumn(say("column.reason"))), rows)
    return Section("rejected", say("section.rejected"), (), table) if rows else None


def _drawn_stages(view: View, say: Phrases) -> Section | None:
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
        TableColumn(say("column.stage")),
        *(TableColumn(say(f"column.{name}"), ColumnKind.NUMBER) for name in ("before", "after")),
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
        TableColumn(say("column.trial"), ColumnKind.NUMBER),
        TableColumn(say("column.setting"), ColumnKind.CODE),
        TableColumn("", ColumnKind.BAR),
        TableColumn(f"{say.word(view['throughput']['counts'])}/s", ColumnKind.NUMBER),
        TableColumn(say("column.step"), ColumnKind.NUMBER),
        TableColumn(say("column.took"), ColumnKind.NUMBER),
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


def _columns(names: tuple[str, ...], say: Phrases) -> tuple[TableColumn, ...]:
    return tuple(
        TableColumn(say(f"column.{name}"), ColumnKind.CODE if name == "setting" else ColumnKind.NUMBER)
        for name in names
    )


def setting(each: View) -> str:
    """As one types it behind `--set`."""
    return shown_setting(each["knob"], each["setting"])


def settings(chosen: View, say: Phrases) -> str:
    """All settings of a trial."""
    return ", ".join(shown_setting(*pair) for pair in chosen.items()) or say("tuned.script")


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
