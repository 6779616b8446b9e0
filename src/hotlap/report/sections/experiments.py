"""What was tried on the running job with its measured gain, and what was not tried with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hotlap.facts.experiment import FREE_INPUT, LEAST_GAIN, ExperimentState
from hotlap.report import experiments
from hotlap.report.document import ColumnKind, Section, Table, TableColumn
from hotlap.report.locale import Phrases
from hotlap.report.words import translated

View = Mapping[str, Any]
MOST_NO_GAIN = 3  # more of them are one line


def tried(view: View, say: Phrases) -> Section | None:
    """A row for each change, with its gain and the command that applies it; free input stands below as a bound."""
    measured = experiments.tried(view)
    if not measured and experiments.free_input(view) is None:
        return None
    no_gain = experiments.of_state(view, ExperimentState.NO_GAIN)
    condensed = no_gain if len(no_gain) > MOST_NO_GAIN else []
    rows = tuple(_row(each, say) for each in measured if each not in condensed)
    table = Table(_columns(say), rows) if rows else None
    return Section("tried", say("section.tried"), (), table, tuple(_notes(view, condensed, say)))


def _columns(say: Phrases) -> tuple[TableColumn, ...]:
    return (
        TableColumn(say("column.change"), ColumnKind.CODE),
        TableColumn(say("column.measured_gain"), ColumnKind.NUMBER),
        TableColumn(say("column.result")),
        TableColumn(say("column.numerics")),
        TableColumn(say("column.command"), ColumnKind.COMMAND),
    )


def _row(each: View, say: Phrases) -> tuple[str, ...]:
    """Only what was measured faster comes with its command."""
    applies = each["state"] == ExperimentState.FASTER and each["apply"]
    return (
        experiments.change(each),
        gain(each, say),
        say(f"experiments.{each['state']}"),
        say.word(each["numerics"], "numerics"),
        each["apply"] if applies else "",
    )


def gain(each: View, say: Phrases) -> str:
    """A measured gain with its confidence interval."""
    interval = each["interval"] or {}
    return say("experiments.gain", gain=each["gain"], low=interval.get("low"), high=interval.get("high"))


def _notes(view: View, condensed: list[View], say: Phrases) -> Iterable[str]:
    if condensed:
        named = [
            say("experiments.one", change=experiments.change(each), gain=each["gain"]) for each in condensed
        ]
        yield say("experiments.no_gain_list", changes=say("list.comma").join(named), least=LEAST_GAIN)
    bound = experiments.free_input(view)
    if bound is not None:
        yield bound_sentence(bound, say)
    for each in experiments.of_state(view, ExperimentState.FASTER):
        if each["build_s"]:
            yield say("experiments.build", each, change=experiments.change(each))
    for each in experiments.of_state(view, ExperimentState.UNDECIDED):
        if each["reason"]:
            yield say(
                "experiments.doubted",
                change=experiments.change(each),
                reason=translated(each["reason"], say),
            )
    ended = view["experiments_ended"]
    yield say(
        "experiments.made",
        count=len(experiments.tried(view)),
        seconds=view["experiments_seconds"],
        ended=translated(ended, say) if ended else None,
    )


def bound_sentence(bound: View, say: Phrases) -> str:
    """`free input (replayed batches): at most +12 %`, which no change of the input can exceed."""
    if bound["gain"] <= 0:
        return say("experiments.free_input_none")
    interval = bound["interval"] or {}
    return say(
        "experiments.free_input", gain=bound["gain"], low=interval.get("low"), high=interval.get("high")
    )


def not_tried(view: View, say: Phrases) -> Section | None:
    """Changes and causes without an experiment, one row for each reason."""
    reasons: dict[str, list[str]] = {}
    for each in experiments.not_tried(view):
        name = say("experiments.free_input_name") if each["knob"] == FREE_INPUT else experiments.change(each)
        reasons.setdefault(_reason(each["reason"], view, say), []).append(name)
    for each in view["untested"]:
        named = reasons.setdefault(_reason(each["reason"], view, say), [])
        place = each["where"]["shown"] if each["where"] else None
        named.append(say("experiments.cause", cause=each["cause"], place=place))
    rows = tuple((say("list.comma").join(dict.fromkeys(names)), reason) for reason, names in reasons.items())
    columns = (
        TableColumn(say("column.change_or_cause"), ColumnKind.CODE),
        TableColumn(say("column.not_tried_reason")),
    )
    return Section("not_tried", say("section.not_tried"), (), Table(columns, rows)) if rows else None


def _reason(reason: str | None, view: View, say: Phrases) -> str:
    if reason:
        return translated(reason, say)
    ended = experiments.none_made(view)
    if ended:
        return translated(ended, say)
    return say("experiments.off" if view["experiments"] is None else "experiments.no_reason")


# What was measured after the window: steps whose input is free, and operators under torch.profiler.


LEAST_SHOWN_GAIN = 0.01  # less than that is no news but this: input does not hold the run back
LEAST_SHARE = 0.001


def free_input(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """What a step takes on a replayed batch, and the gain that no fix of input can exceed."""
    seen = view["free_input"]
    if seen is None or experiments.free_input(view) is not None:  # an experiment has the same bound
        return None
    sentence = say(f"free_input.{_kind(seen)}", seen, now=view["step"]["ms_mean"])
    notes, table = [say("free_input.note")], _rehearsed(view["rehearsals"], say)
    if table is not None:
        notes.append(say("free_input.rehearsed"))
    return Section("free_input", say("section.free_input"), (sentence,), table, tuple(notes))


def _rehearsed(rehearsals: Sequence[Mapping[str, Any]], say: Phrases) -> Table | None:
    columns = [
        TableColumn(say(f"column.{each}"), ColumnKind.NUMBER)
        for each in ("rehearsed_workers", "step", "throughput")
    ]
    rows = tuple(
        (
            say.number(each["workers"], ""),
            say.number(each["step_ms"], "ms"),
            say.number(each["gain"], "gain"),
        )
        for each in rehearsals
    )
    return Table(tuple(columns), rows) if rows else None


def _kind(seen: Mapping[str, Any]) -> str:
    if seen["disturbed"]:
        return "disturbed"
    return "gain" if seen["gain"] >= LEAST_SHOWN_GAIN else "none"


def operators(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """The operators that took most time, with their sizes, and what kinds they are of."""
    seen = view["ops"]
    if seen is None:
        return None
    columns = (
        TableColumn(say("column.operator"), ColumnKind.CODE),
        TableColumn(say("column.share"), ColumnKind.NUMBER),
        TableColumn(say("column.calls"), ColumnKind.NUMBER),
        TableColumn(say("column.dtype"), ColumnKind.CODE),
        TableColumn(say("column.shapes"), ColumnKind.CODE),
    )
    rows = tuple(
        (
            each["name"],
            say.number(each["share"], "share"),
            say.number(each["calls"], ""),
            each["dtype"],
            each["shapes"],
        )
        for each in seen["top"]
        if each["share"] >= LEAST_SHARE
    )
    notes = [say("operators.note")]
    if view["ops_trace"] is not None:
        notes.append(say("operators.trace", trace=view["ops_trace"]))
    sentences = (say("operators.kinds", seen), *_device(seen, say))
    return Section("operators", say("section.operators"), sentences, Table(columns, rows), tuple(notes))


def _device(seen: Mapping[str, Any], say: Phrases) -> tuple[str, ...]:
    idle = seen["device_idle"]
    return () if idle is None else (say("operators.idle", idle=idle),)


def compute(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """FLOPs of the step and of its stages, against what the device can do."""
    seen = view.get("compute")
    if seen is None:
        return None
    columns = (
        TableColumn(say("column.stage")),
        *(
            TableColumn(say(f"column.{each}"), ColumnKind.NUMBER)
            for each in ("flops", "flops_rate", "mfu", "products_at_roof")
        ),
        TableColumn(say("column.bound")),
    )
    rows = tuple(_compute_row(each, say) for each in seen["stages"])
    notes = [say("compute.note", steps=seen["steps"] or 1)]
    if seen["compiled"]:
        notes.insert(0, say("compute.compiled"))
    sentences = (say("compute.step", seen["step"]), _roof(seen["roof"], say))
    return Section("compute", say("section.compute"), sentences, Table(columns, rows), tuple(notes))


def _compute_row(stage: Mapping[str, Any], say: Phrases) -> tuple[str, ...]:
    rate = stage["flops_per_s"]
    return (
        say(f"stage.{stage['stage']}"),
        say.number(stage["flops"], "flops"),
        say.number(rate, "flops") + ("/s" if rate is not None else ""),
        say.number(stage["mfu"], "share"),
        say.number(stage["products_at_roof"], "share"),
        say("not_measured") if stage["bound"] is None else say(f"bound.{stage['bound']}"),
    )


def _roof(roof: Mapping[str, Any] | None, say: Phrases) -> str:
    if roof is None or roof["flops_per_s"] is None:
        return say("compute.no_roof")
    kind = roof["source"] if roof["source"] in ("measured", "given") else "datasheet"
    return say(f"compute.roof_{kind}", roof)
