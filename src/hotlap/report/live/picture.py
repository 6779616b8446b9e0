"""A live view in words, before it is drawn: a state, a few figures, sections of sentences and tables."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.facts.timeline import Stage
from hotlap.report import sheet
from hotlap.report.document import ColumnKind, Section, Table, TableColumn, printable
from hotlap.report.locale import Phrases
from hotlap.report.renderers.json import Json
from hotlap.report.sheet import BESIDE, labelled, text

if TYPE_CHECKING:
    from rich.console import RenderableType


_TONES = {"running": "good", "stalled": "critical", "killed": "critical", "gone": "critical"}
_GRAVE = {"ok": 0, "warning": 1, "critical": 2}
_LEAST_SHARE = 0.0005
Row = tuple[str | float, ...]


@dataclass(frozen=True)
class LiveView:
    """`tone` is good, warning, critical or none; `alarm` what the gravest monitor says, of that tone.

    `figures` are (figure, what it is), `speeds` those of a small plot.
    """

    command: str
    state: str
    tone: str
    alarm: str
    figures: tuple[tuple[str, str], ...]
    progress: str
    share: float | None
    sections: tuple[Section, ...]
    speeds: tuple[float, ...] = ()
    pictures: tuple[str, ...] = ()
    closing: str = ""


def picture(view: Mapping[str, Any], say: Phrases) -> LiveView:
    """What there is to see; what was not measured is said to be that."""
    lately = view.get("lately") or {}
    sections = [
        _stages(lately, say),
        _speed(view, say),
        _usage(view.get("usage"), say),
        _monitors(view, say),
        _problems(view, say),
    ]
    words, share = _progress(view.get("progress"), say)
    job = view.get("job") or {}
    drift = view.get("drift") or {}
    return LiveView(
        command=job.get("shown") or say("live.job_unknown"),
        state=say(f"live.state.{view['state']}", age_s=view.get("age_s"), exit_code=view.get("exit_code")),
        tone=_tone(view),
        alarm=_alarm(view, say),
        figures=_figures(view, lately, say),
        progress=words,
        share=share,
        sections=tuple(each for each in sections if each is not None),
        speeds=tuple(point[1] for point in drift.get("series", ())),
        pictures=tuple(view.get("pictures", ())),
        closing=say("live.closing", run=view["run"]),
    )


def _tone(view: Mapping[str, Any]) -> str:
    """That of the state, or of the gravest monitor."""
    own = "critical" if view.get("exit_code") else _TONES.get(view["state"], "none")
    worst = max((_gravity(each) for each in _words(view).values()), default=0)
    return own if own == "critical" or not worst else ("warning", "critical")[worst - 1]


def _alarm(view: Mapping[str, Any], say: Phrases) -> str:
    grave = [each for each in _words(view).items() if _gravity(each[1])]
    if not grave:
        return ""
    name, word = max(grave, key=lambda each: _gravity(each[1]))
    return f"{_name(name, say)}: {_says(name, word, say)}"


def _gravity(word: Mapping[str, Any]) -> int:
    return _GRAVE.get(str(word.get("gravity")), 0)


def _words(view: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The monitors' words; what is none is passed over, as the file may be of anybody."""
    found = view.get("monitors")
    if not isinstance(found, Mapping):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, Mapping) and "state" in each}


def _figures(view: Mapping[str, Any], lately: Mapping[str, Any], say: Phrases) -> tuple[tuple[str, str], ...]:
    usage = view.get("usage") or {}
    progress = view.get("progress") or {}
    epoch = progress.get("epoch")
    left = say("live.figure.left") if epoch is None else say("live.figure.left_epoch", epoch=epoch)
    rows = (
        (view.get("steps"), "count", say("live.figure.steps")),
        (lately.get("steps_per_s"), "rate", say("live.figure.rate")),
        (lately.get("samples_per_s"), "rate", say("live.figure.samples")),
        (lately.get("step_ms"), "ms", say("live.figure.step")),
        (lately.get("p95_ms"), "ms", say("live.figure.p95")),
        (usage.get("tree_rss") or usage.get("rss"), "size", say("live.figure.memory")),
        (progress.get("left_s") if view["state"] == "running" else None, "s", left),
    )
    return tuple((say.number(value, written), label) for value, written, label in rows if value is not None)


def _progress(progress: Mapping[str, Any] | None, say: Phrases) -> tuple[str, float | None]:
    if not progress or not progress.get("total"):
        return say("live.progress.unknown"), None
    share = progress["done"] / progress["total"]
    key = "live.progress.all" if progress.get("epoch") is None else "live.progress.epoch"
    return say(key, progress, share=share), share


def _stages(lately: Mapping[str, Any], say: Phrases) -> Section:
    title = say("live.section.stages")
    shares: Mapping[str, float] = lately.get("stages") or {}
    if not shares:
        return Section("stages", title, (say("live.stages.none"),))
    known = [str(stage) for stage in Stage if shares.get(str(stage), 0.0) > _LEAST_SHARE]
    rows: list[Row] = [
        (say.word(name, "stage"), say.number(shares[name], "share"), min(1.0, shares[name])) for name in known
    ]
    columns = (
        TableColumn(say("column.stage")),
        TableColumn(say("column.share"), ColumnKind.NUMBER),
        TableColumn("", ColumnKind.BAR),
    )
    table = Table(columns, tuple(rows), tuple(f"stage-{name}" for name in known))
    return Section("stages", title, (say("live.stages.of", lately),), table)


def _speed(view: Mapping[str, Any], say: Phrases) -> Section | None:
    drift = view.get("drift")
    if not drift or drift.get("now") is None:
        return None
    return Section("speed", say("live.section.speed"), (say(f"live.drift.{drift['state']}", drift),))


def _usage(usage: Mapping[str, Any] | None, say: Phrases) -> Section | None:
    if not usage:
        return None
    sentences = (say("live.usage.memory", usage), say("live.usage.cores", usage))
    return Section("usage", say("live.section.usage"), sentences)


def _monitors(view: Mapping[str, Any], say: Phrases) -> Section:
    title = say("live.section.monitors")
    words = sorted(_words(view).items(), key=lambda each: (-_gravity(each[1]), each[0]))
    if not words:
        return Section("monitors", title, (say("live.monitors.none"),))
    rows: list[Row] = [(_name(name, say), _mark(word, say), _says(name, word, say)) for name, word in words]
    columns = (TableColumn(say("live.column.monitor")), TableColumn(""), TableColumn(say("live.column.what")))
    cost = view.get("cost")
    notes = (say("live.cost", cost),) if isinstance(cost, Mapping) and cost.get("share") else ()
    colours = tuple(str(word.get("gravity")) for _, word in words)
    return Section("monitors", title, (), Table(columns, tuple(rows), colours), notes)


def _name(monitor: str, say: Phrases) -> str:
    return say(f"monitor.{monitor}") if f"monitor.{monitor}" in say else monitor


def _mark(word: Mapping[str, Any], say: Phrases) -> str:
    return say.word(word.get("gravity"))


def _says(monitor: str, word: Mapping[str, Any], say: Phrases) -> str:
    """A monitor of somebody else has its own word and no sentence of ours."""
    key = f"monitor.{monitor}.{word['state']}"
    figures = word.get("figures")
    filled = {**figures} if isinstance(figures, Mapping) else {}
    return say(key, filled, since=word.get("since")) if key in say else str(word["state"])


def _problems(view: Mapping[str, Any], say: Phrases) -> Section | None:
    problems = tuple(str(each) for each in view.get("problems", ()))
    return Section("problems", say("live.section.problems"), problems) if problems else None


# A live view in a terminal: drawn anew once a second, in place where the terminal can do that.


_TERMINAL_TONES = {"good": "bold green", "warning": "bold yellow", "critical": "bold red", "none": "bold"}
_SPARKS = "▁▂▃▄▅▆▇█"
_MOST_SPARKS = 60
_PROGRESS = 40


def draw(view: Mapping[str, Any], lang: str = "en", colour: bool = False, ascii_only: bool = False) -> str:
    """One look, as text."""
    say = Phrases(lang)
    return sheet.drawn(_parts(picture(view, say), say, ascii_only), colour)


def _parts(seen: LiveView, say: Phrases, ascii_only: bool) -> Iterable[RenderableType]:
    lines = [
        text(seen.command, "dim", BESIDE),
        text(seen.state, "bold" if seen.alarm else _TERMINAL_TONES[seen.tone], BESIDE),
    ]
    if seen.alarm:
        lines.append(text(seen.alarm, _TERMINAL_TONES[seen.tone], BESIDE))
    yield labelled("hotlap", lines)
    yield ""
    yield text("   ".join(f"{figure} {label}" for figure, label in seen.figures), "bold")
    bar = "" if seen.share is None else sheet.bar(seen.share, _PROGRESS, ascii_only) + "  "
    yield text(f"{bar}{seen.progress}")
    for section in seen.sections:
        yield from sheet.section(section, ascii_only, say, most=16)
        if section.id == "speed" and len(seen.speeds) > 1 and not ascii_only:
            yield sheet.indented(text(sparks(seen.speeds), "cyan"))
    yield ""
    yield text(seen.closing, "dim")


def sparks(values: tuple[float, ...]) -> str:
    """The last values as small bars, from nothing to the largest."""
    shown = values[-_MOST_SPARKS:]
    most = max(shown) or 1.0
    return "".join(_SPARKS[min(7, max(0, int(value / most * 7.999)))] for value in shown)


# A live view as a web page that draws itself anew once a second. No text in it acts; nothing comes from elsewhere.


_TEMPLATES = Path(__file__).parents[1] / "templates"
_PLOT = (600, 60)  # width and height of the small plot of speeds


class LivePages:
    """The page, the part of it that changes, and the same facts as JSON."""

    def __init__(self, lang: str = "en") -> None:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        self._say = Phrases(lang)
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=_shown,
        )  # fmt: skip
        names = ("style.css", "live.css", "live.js")
        texts = [(_TEMPLATES / name).read_text(encoding="utf-8") for name in names]
        self._style, self._script = texts[0] + texts[1], texts[2]
        self.policy = (
            f"default-src 'none'; script-src '{_hash(self._script)}'; style-src '{_hash(self._style)}'; "
            "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )

    def whole(self, view: Mapping[str, Any], token: str) -> str:
        return self._filled("live.html.j2", view, token)

    def part(self, view: Mapping[str, Any], token: str) -> str:
        return self._filled("live_part.html.j2", view, token)

    def plain(self, view: Mapping[str, Any]) -> str:
        return Json().render(view)

    def _filled(self, name: str, view: Mapping[str, Any], token: str) -> str:
        seen = picture(view, self._say)
        page = self._environment.get_template(name).render(
            picture=seen, say=self._say, token=token, Kind=ColumnKind, points=points(seen.speeds), plot=_PLOT,
            style=self._style, script=self._script, looked=view.get("steps"),
        )  # fmt: skip
        return page.encode("utf-8", "replace").decode("utf-8")


def points(values: tuple[float, ...]) -> str:
    """A line through all values, for an SVG of the plot's size; from nothing to the largest."""
    if len(values) < 2:
        return ""
    width, height = _PLOT
    most = max(values) or 1.0
    across = width / (len(values) - 1)
    return " ".join(
        f"{index * across:.1f},{height - max(0.0, value) / most * (height - 2) - 1:.1f}"
        for index, value in enumerate(values)
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _shown(value: Any) -> Any:
    return printable(value) if type(value) is str else value
