"""Renderers are found by walking their folder, and each draws every view in every language."""

from __future__ import annotations

import pytest

from hotlap import discover
from hotlap.ports.renderer import Renderer
from hotlap.report import renderers
from hotlap.report.locale import LANGUAGES

FOUND = {renderer.id: renderer for renderer in discover.units(renderers, Renderer)}


def test_the_outputs_are_found():
    assert set(FOUND) == {"html", "json", "markdown", "perfetto", "terminal"}
    assert len({renderer.suffix for renderer in FOUND.values()}) == len(FOUND)


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("output", sorted(FOUND))
def test_every_view_is_drawn_in_every_language(views, output, lang):
    for view in views.values():
        text = FOUND[output].render(view, lang)
        assert text.endswith("\n") or output == "html"
        assert view["run"] in text or output == "markdown"


@pytest.mark.parametrize("output", sorted(FOUND))
def test_drawing_leaves_the_view_as_it_is(views, output):
    before = FOUND["json"].render(views["data-bound"])
    FOUND[output].render(views["data-bound"], "zh")
    assert FOUND["json"].render(views["data-bound"]) == before


@pytest.mark.parametrize("output", sorted(set(FOUND) - {"json"}))
def test_an_unknown_language_is_refused_by_all(views, output):
    with pytest.raises(Exception, match="'tlh'"):
        FOUND[output].render(views["healthy"], "tlh")
