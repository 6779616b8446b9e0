"""The whole report in one HTML file that opens offline: no request leaves it, no text of others acts in it.

Everything is escaped by the template. On top of that the page's own policy lets only its two scripts run,
named by their hashes, and forbids every load from anywhere, so that even a slip in escaping could not reach
out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hotlap.ports.renderer import Renderer
from hotlap.report import advice, charts, words
from hotlap.report import advice as rewrites
from hotlap.report.document import Document, printable
from hotlap.report.locale import Phrases
from hotlap.report.outcome import document_of
from hotlap.report.sections import build
from hotlap.report.sections.machine import host
from hotlap.report.sections.time import held_time, line_sentence, stage_name

TEMPLATES = Path(__file__).parent.parent / "templates"
ORDER = (
    "stages", "tried", "not_tried", "free_input", "timeline", "findings", "rewrites", "lines", "operators",
    "compute", "workers", "ranks", "memory", "cpu", "syncs", "occasional", "warmup", "loaders", "host", "reading",
)  # fmt: skip
READING = ("stages", "mean", "steady", "lines", "gains", "at_most", "absent")


class Html(Renderer):
    """Plots by plotly.js, which is part of the file; the tables say the same without it."""

    id: ClassVar[str] = "html"
    suffix: ClassVar[str] = ".html"

    def render(self, view: Mapping[str, Any], lang: str = "en") -> str:
        say = Phrases(lang)
        document = document_of(view, say)
        page = _profile_page(view, say) if document is None else _outcome_page(document, say)
        # A path may hold bytes that are no text; a page must be text.
        return page.encode("utf-8", "replace").decode("utf-8")


def _profile_page(view: Mapping[str, Any], say: Phrases) -> str:
    from plotly.offline import get_plotlyjs

    plots = charts.data(view, say)
    scripts = [get_plotlyjs(), (TEMPLATES / "charts.js").read_text(encoding="utf-8")]
    return _filled(
        "report.html.j2",
        **_content(view, say),
        say=say,
        view=view,
        scripts=scripts,
        policy=_policy(scripts),
        has={name: _bars(plot) for name, plot in plots.items()},
        data=_embedded(plots),
    )


def _outcome_page(document: Document, say: Phrases) -> str:
    """Bars and tables need no script, so none may run."""
    return _filled("outcome.html.j2", document=document, say=say, policy=_policy([]))


def _filled(name: str, **content: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_shown,
    )  # fmt: skip
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template(name).render(style=style, **content)


def _content(view: Mapping[str, Any], say: Phrases) -> dict[str, Any]:
    finding = words.first(view)
    return {
        "verdict": words.verdict(view, say) if finding is None else say(f"verdict.{finding['cause']}"),
        "first": finding,
        "measured": words.measured_fix(finding) if finding else None,
        "why": words.why(view, say),
        "todo": words.next_step(view, say),
        "fixes": [words.fix(each, say) for each in words.advised(finding)] if finding else [],
        "commands": advice.next_commands(view, set(advice.COMMANDS) - {"report"}),  # this is the report
        "tiles": _tiles(view, say),
        "strip": [(name, stage_name(name, say), each["share"]) for name, each in held_time(view)],
        "findings": [_card(each, view, say) for each in view["findings"]],
        "sections": {section.id: section for section in (*build(view, say), host(view, say))},
        "rewrites": rewrites.shown_rewrites(view, say),
        "unmatched": rewrites.lines(view, say),
        "rewrites_closing": rewrites.rewrites_closing(view, say),
        "lines": [(line_sentence(line, say), line) for line in view["lines"]],
        "order": ORDER,
        "extra": {id: say(f"section.{id}") for id in _extra(view)},
        "reading": [say(f"reading.{part}") for part in READING],
        "closing": [line for line in (words.ending(view, say), words.faults(view, say)) if line],
    }


def _extra(view: Mapping[str, Any]) -> tuple[str, ...]:
    """Parts of the page that the template draws itself."""
    return (
        "timeline",
        "findings",
        *(("rewrites",) if view["rewrites"] or view.get("unmatched") else ()),
        "reading",
    )


def _tiles(view: Mapping[str, Any], say: Phrases) -> list[tuple[str, str, bool]]:
    """A figure, what it is, and whether it was measured."""
    step, rates = view["step"], view["throughput"]
    figures = [
        ("html.step_median", step["ms_median"], "ms"),
        ("html.step_p95", step["ms_p95"], "ms"),
        ("html.steps_per_s", rates["steps_per_s"], "rate"),
        ("html.samples_per_s", rates["samples_per_s"], "rate"),
        ("html.tokens_per_s", rates["tokens_per_s"], "rate"),
        ("html.steady_steps", step["n"], "count"),
        ("html.coverage", view["coverage"], "share"),
        ("html.overhead", view["overhead"], "share"),
    ]
    # Most jobs have no tokens: a tile that says so would be noise.
    return [
        (say.number(value, written), say(key), value is not None)
        for key, value, written in figures
        if value is not None or key != "html.tokens_per_s"
    ]


def _card(finding: Mapping[str, Any], view: Mapping[str, Any], say: Phrases) -> dict[str, Any]:
    return {
        **finding,
        "headline": say(f"verdict.{finding['cause']}"),
        "evidence": words.evidence(finding, say),
        "place": words.where(finding, say),
        "todo": words.what_to_do(finding, say),
        "fixes": [_fix(each, view, say) for each in finding["fixes"]],
        "explain": advice.explain(finding).line,
        "figure": words.figure(finding, say),
    }


def _fix(fix: Mapping[str, Any], view: Mapping[str, Any], say: Phrases) -> dict[str, Any]:
    interval = fix["interval"] or {"low": None, "high": None}
    low, high = (say.number(interval[end], "percent") for end in ("low", "high"))
    is_measured = fix["measured_gain"] is not None
    return {
        "what": words.setting(fix, say),
        "gain": say.number(fix["measured_gain"], "gain"),
        "measured": is_measured,
        "interval": f"{low} .. {high}" if fix["interval"] else "",
        "command": advice.apply_command(fix, view["job"]),
    }


def _shown(value: Any) -> Any:
    """Control characters are written out; what is not text goes through as it is."""
    return printable(value) if type(value) is str and "\n" not in value else value


def _bars(plot: Mapping[str, Any] | None) -> int:
    """How many bars a plot has, for its height; 1 for a plot of curves, 0 where there is none."""
    return 0 if plot is None else len(plot.get("names", [0]))


def _embedded(data: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(scripts: list[str]) -> str:
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
