"""From hot lines to changes of the source: which known patterns hold the time, with the diff that mends each."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hotlap.diagnose.compute import in_training, steps_run
from hotlap.facts.experiment import LEAST_GAIN, Experiments, ExperimentState
from hotlap.facts.rewrite import Recognised, Rewriting
from hotlap.facts.summary import Summary, by_pace, summarise
from hotlap.facts.timeline import HotLine, Stage, Timeline
from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Cost, Edit, Function, Value
from hotlap.probe import boundary
from hotlap.rewriting.hook import Spotted, spotted
from hotlap.source.files import SourceFile, UnreadableError, edited
from hotlap.source.values import merged

_Group = tuple[str, str, int]  # pattern, file, line


def recognised(
    timelines: Sequence[Timeline], folder: str, experiments: Experiments | None = None
) -> tuple[Recognised, ...]:
    """The largest share of the step first. `folder` is the job's own."""
    if not timelines:
        return ()
    timeline = by_pace(timelines)[0]
    summary = summarise(timeline)
    found: dict[_Group, Recognised] = {}
    for line, held in shares(timeline, summary).items():
        for each in boundary.attempt(_at, line, held, timeline, folder) or ():
            group = (each.id, each.file, each.line)
            known = found.get(group)
            if known is not None:  # of several lines or stages the one that holds most stands for all
                most, share = max(each, known, key=lambda one: one.share), each.share + known.share
                each = replace(most, share=min(1.0, share))
            found[group] = each
    for line, held in _waits(timeline, summary).items():
        for each in boundary.attempt(_at, line, held, timeline, folder) or ():
            found.setdefault((each.id, each.file, each.line), replace(each, cost="waiting"))
    for each in boundary.attempt(_elsewhere, timeline, summary, folder) or ():
        found.setdefault((each.id, each.file, each.line), each)
    noticeable = [each for each in found.values() if each.share >= LEAST_GAIN or each.cost == Cost.MEMORY]
    ranked = sorted(noticeable, key=lambda each: (-each.share, each.file, each.line))
    return tuple(_measured(each, experiments) for each in ranked)


def _waits(timeline: Timeline, summary: Summary) -> dict[HotLine, float]:
    """The part of a step that the host waits for its device, by line: samples there say little of it."""
    step_s = (summary.step_ms or 0.0) / 1e3
    found: dict[HotLine, float] = {}
    for point in in_training(timeline) if step_s else ():
        line = HotLine(point.place, point.call, point.stage, 0.0, point.count)
        found[line] = min(1.0, point.seconds / steps_run(timeline) / step_s)
    return found


def _elsewhere(timeline: Timeline, summary: Summary, folder: str) -> list[Recognised]:
    """What leaves no trace at a line of its own, in files of the job of which a line was seen."""
    found = []
    slowed = summary.share(Stage.FORWARD, Stage.BACKWARD)
    files = {Path(folder, each.place.file) for each in timeline.lines}
    for path in sorted(each for each in files if _is_below(each, folder)):
        try:
            source = SourceFile.read(path)
        except UnreadableError:
            continue
        for function in source.functions:
            values = merged(_looks(timeline, folder, path, function))
            sites = [each for each in spotted(function, values) if each.pattern.cost is not Cost.TIME]
            for group in _by_line(sites):
                each = boundary.attempt(_described, group, source, folder)
                cost = group[0].pattern.cost
                if each is not None:
                    share = slowed if cost is Cost.SWITCH else 0.0
                    found.append(replace(each, share=share, cost=cost.value))
    return found


def _is_below(path: Path, folder: str) -> bool:
    real = os.path.realpath(path)
    return real.startswith(os.path.realpath(folder) + os.sep) and "site-packages" not in Path(real).parts


def _looks(timeline: Timeline, folder: str, path: Path, function: Function) -> list[Mapping[str, str]]:
    """What was seen of values in the lines of a function."""
    return [
        each.values
        for each in timeline.lines
        if Path(folder, each.place.file) == path
        and function.first_line <= each.place.line <= function.last_line
    ]


def shares(timeline: Timeline, summary: Summary) -> dict[HotLine, float]:
    """The part of a step behind each line. A loop that waits for workers holds none: their lines do."""
    in_main = all(each.worker < 0 for each in timeline.workers)

    def waits(line: HotLine) -> bool:
        return line.role == "main" and line.stage is Stage.DATA and not in_main

    return {line: line.share * summary.share(line.stage) for line in timeline.lines if not waits(line)}


def _at(line: HotLine, held: float, timeline: Timeline, folder: str) -> Iterable[Recognised]:
    """What is recognised in the function of a hot line and holds that line."""
    path = Path(folder, line.place.file)
    try:
        source = SourceFile.read(path)
    except UnreadableError:
        return
    number = line.place.line
    function = source.function_at(number)
    values = {**merged(_looks(timeline, folder, path, function)), **line.values}
    inner = [
        each
        for each in source.functions
        if function.first_line <= each.first_line <= number <= each.last_line <= function.last_line
    ]
    sites = [each for one in inner for each in spotted(one, values)]
    here = [each for each in sites if _holds(each, number)]
    feeds = line.role == "worker" or line.stage is Stage.DATA
    for group in _by_line(here):
        found = boundary.attempt(_described, group, source, folder)
        if found is not None:
            yield replace(found, share=held, feeds=feeds)


def _holds(each: Spotted, number: int) -> bool:
    first, last = each.site.held
    return each.pattern.cost is Cost.TIME and first <= number <= last


def _by_line(sites: Iterable[Spotted]) -> Iterable[list[Spotted]]:
    """Sites of one pattern on one line are one rewrite."""
    groups: dict[tuple[str, str, int], list[Spotted]] = {}
    for each in sites:
        line = getattr(each.site.node, "lineno", 1)
        groups.setdefault((each.pattern.id, each.function.qualname, line), []).append(each)
    return groups.values()


def _described(group: Sequence[Spotted], source: SourceFile, folder: str) -> Recognised:
    first = group[0]
    edits = [edit for each in group for edit in each.edits]
    line = getattr(first.site.node, "lineno", 1)
    file = shown_file(str(source.path), folder)
    classes: list[Numerics] = [each.site.numerics or each.pattern.numerics for each in group]
    numerics = max(classes, key=list(Numerics).index)
    advice = any(each.site.advice or not each.edits for each in group)
    rewriting = Rewriting(
        first.pattern.id,
        file,
        line,
        first.function.qualname,
        tuple(each.at for each in group),
        source.hash_of(first.function),
        numerics.value,
        _needed(group, first.function),
    )
    before, after = changed_lines(source, edits)
    return Recognised(
        first.pattern.id,
        file,
        line,
        first.function.qualname,
        0.0,
        None if advice else rewriting,
        {**first.site.values, "code": before[0].strip() if before else first.function.text(first.site.node)},
        before,
        after,
        diff_of(source, edits, file) if edits else "",
    )


def _needed(group: Sequence[Spotted], function: Function) -> dict[str, str]:
    """What was seen of the values that the sites need, without sizes: these differ from run to run."""
    asked = {name: _rank_only(text) for each in group for name, text in each.seen.items()}
    own = {one.id for each in group for one in ast.walk(each.site.node) if isinstance(one, ast.Name)}
    few = {name: text for name, text in asked.items() if name.partition(".")[0].partition("[")[0] in own}
    again = {each.at: each.edits for each in spotted(function, few, group[0].pattern)}
    return few if all(again.get(each.at) == each.edits for each in group) else asked


def _rank_only(text: str) -> str:
    value = Value.read(text)
    if value.type in ("list", "tuple", "dict"):
        return " ".join((value.type, "?", *([_rank_only(" ".join(value.rest[1:]))] if value.element else [])))
    if value.shape is None:
        return text
    shape = "x".join("?" for _ in value.shape) or "scalar"
    return " ".join((value.type, value.rest[0], shape, *value.rest[2:]))


def shown_file(path: str, folder: str) -> str:
    """Relative to the job's folder where it lies below it."""
    real, home = os.path.realpath(path), os.path.realpath(folder)
    return os.path.relpath(real, home) if real.startswith(home + os.sep) else real


def diff_of(source: SourceFile, edits: Sequence[Edit], file: str, context: int = 3) -> str:
    """What `git apply` takes."""
    before, after = _lines(source.text), _lines(edited(source.text, edits))
    parts = difflib.unified_diff(before, after, f"a/{file}", f"b/{file}", n=context)
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in parts)
    return "".join(ended)


def changed_lines(source: SourceFile, edits: Sequence[Edit]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that go and lines that come, without the indent that all have in common."""
    before, after = _lines(source.text), _lines(edited(source.text, edits))
    old: list[str] = []
    new: list[str] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            old += before[i:j]
            new += after[k:m]
    indent = min((len(line) - len(line.lstrip()) for line in [*old, *new] if line.strip()), default=0)
    return tuple(line[indent:].rstrip() for line in old), tuple(line[indent:].rstrip() for line in new)


def _lines(text: bytes) -> list[str]:
    """As git counts them."""
    return [each.decode() for each in re.findall(rb"[^\n]*\n|[^\n]+\Z", text)]


def _measured(each: Recognised, experiments: Experiments | None) -> Recognised:
    """With the gain that an experiment has measured; what it could not decide is no figure to act on."""
    key = each.rewriting.key if each.rewriting is not None else ""
    tried = experiments.of(key) if experiments is not None and key else ()
    known: Mapping[str, object] = {}
    if tried and tried[0].state in (ExperimentState.FASTER, ExperimentState.NO_GAIN):
        known = {"gain": tried[0].gain, "interval": tried[0].interval}
    return replace(each, **known)  # type: ignore[arg-type]
