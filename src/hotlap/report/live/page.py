"""A live view as a web page that draws itself anew once a second. No text in it acts; nothing comes from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotlap.report.document import Kind
from hotlap.report.live.picture import picture
from hotlap.report.locale import Phrases
from hotlap.report.plain import printable
from hotlap.report.renderers.json import Json

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
            picture=seen, say=self._say, token=token, Kind=Kind, points=points(seen.speeds), plot=_PLOT,
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
