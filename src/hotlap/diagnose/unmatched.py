"""Hot lines that show no known pattern: what they call, how often they ran, and on what."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from hotlap.diagnose.rewrites import shares, shown_file
from hotlap.facts.rewrite import Recognised, Unmatched
from hotlap.facts.summary import by_pace, summarise
from hotlap.facts.timeline import HotLine, Stage, Timeline
from hotlap.ports.rewrite import Function, Seen, Value
from hotlap.source.files import SourceFile, UnreadableError
from hotlap.source.values import Observed, dotted, full_name

_MOST = 3
_WORTH_A_LOOK = 0.1  # of the step
_OWN_WORK = frozenset({Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMIZER})
"""What the model computes: findings speak of it."""


def unmatched(
    timelines: Sequence[Timeline], folder: str, found: Iterable[Recognised]
) -> tuple[Unmatched, ...]:
    """Those that hold a tenth of the step or more, the largest first."""
    if not timelines:
        return ()
    timeline = by_pace(timelines)[0]
    known = {(each.file, each.function) for each in found}
    held = sorted(shares(timeline, summarise(timeline)).items(), key=lambda pair: -pair[1])
    lines = []
    for line, share in held:
        path = Path(folder, line.place.file)
        file = shown_file(str(path), folder)
        if share < _WORTH_A_LOOK or line.stage in _OWN_WORK or (file, line.place.function) in known:
            continue
        try:
            source = SourceFile.read(path)
        except UnreadableError:
            continue
        lines.append(_described(line, share, file, source, timeline))
    return tuple(lines[:_MOST])


def _described(line: HotLine, share: float, file: str, source: SourceFile, timeline: Timeline) -> Unmatched:
    function = source.function_at(line.place.line)
    seen = Observed(line.values, source.tree)
    fetches = function.qualname.rpartition(".")[2] == "__getitem__"
    item_ms = _item_ms(timeline) if fetches else None
    runs = _runs(function, line.place.line, seen) if fetches else None
    took = item_ms * line.share if item_ms is not None else None
    return Unmatched(
        file,
        line.place.line,
        line.place.code,
        share,
        line.callee,
        line.inner,
        runs,
        took / runs if took is not None and runs else None,
        took,
        _values(function, line.place.line, seen),
    )


def _item_ms(timeline: Timeline) -> float | None:
    items = sum(each.items for each in timeline.workers)
    return sum(each.fetch_s for each in timeline.workers) * 1e3 / items if items else None


def _runs(function: Function, line: int, seen: Seen) -> float | None:
    """How often a line ran in one call of its function: once, but for the loops around it whose lengths were seen."""
    found = 1.0
    for node in function.walk():
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        if not first <= line <= last:
            continue
        if isinstance(node, ast.While | ast.AsyncFor):
            return None
        if isinstance(node, ast.For) and node.body[0].lineno <= line:
            walked: list[ast.expr] = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            walked = [each.iter for each in node.generators]
        else:
            continue
        for each in walked:
            length = _length(function, each, seen)
            if length is None:
                return None
            found *= length
    return found


def _length(function: Function, node: ast.expr, seen: Seen) -> float | None:
    match node:
        case ast.Call(args=[only], keywords=[]) if full_name(function.module, node.func) == "range":
            if isinstance(only, ast.Constant) and isinstance(only.value, int):
                return float(only.value)
            counted = isinstance(only, ast.Call) and full_name(function.module, only.func) == "len"
            return (
                _size(seen.value(only.args[0]))
                if counted and isinstance(only, ast.Call) and only.args
                else None
            )
        case ast.Call(args=[only, *_]) if full_name(function.module, node.func) in ("enumerate", "zip"):
            return _length(function, only, seen)
    return _size(seen.value(node))


def _size(value: Value | None) -> float | None:
    if value is None:
        return None
    if value.shape:
        return float(value.shape[0]) if value.shape[0] >= 0 else None
    known = value.type in ("list", "tuple", "dict") and value.rest and value.rest[0].isdigit()
    return float(value.rest[0]) if known else None


def _values(function: Function, line: int, seen: Seen) -> dict[str, str]:
    """Of the names on the line, what they were seen to be; numbers and text say nothing."""
    found: dict[str, str] = {}
    for node in function.walk():
        here = getattr(node, "lineno", 0) == line and isinstance(node, ast.Name | ast.Attribute)
        value = seen.value(node) if here and isinstance(node, ast.expr) and dotted(node) else None
        if value is not None and (value.shape is not None or value.type in ("list", "tuple", "dict")):
            found[dotted(node)] = " ".join((value.type, *value.rest[:2]))
    return found
