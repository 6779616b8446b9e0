"""The HTML report is one file that loads nothing, lets no text act, and says all that the view says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Fix, Severity
from hotlap.facts.job import Job
from hotlap.facts.timeline import HotLine, SourceLine, Stage
from hotlap.report.renderers.html import Html
from hotlap.report.view import profile_view

VOID = {"meta", "br", "img", "link", "input", "hr", "base"}
ATTACK = "</script><img src=x onerror=alert(1)>\"'`<!--{{7*7}}"


class Page(HTMLParser):
    """Tags with their attributes, the text of scripts, and whether every tag was closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    @property
    def shown(self) -> str:
        return " ".join(
            text for tag, texts in self.texts.items() if tag not in ("script", "style") for text in texts
        )

    @property
    def data(self) -> dict:
        return json.loads(self.texts["script"][0])


@pytest.fixture(scope="module")
def pages(views):
    return {
        (name, lang): Page(Html().render(view, lang)) for name, view in views.items() for lang in ("en", "zh")
    }


def test_every_tag_is_closed(pages):
    assert all(page.open == [] for page in pages.values())


def test_nothing_is_loaded_from_anywhere(pages):
    for page in pages.values():
        for tag, attributes in page.tags:
            assert tag not in ("link", "iframe", "object", "embed", "base", "img")
            assert "src" not in attributes and not (attributes.get("href") or "#").startswith(("http", "//"))
        assert not re.search(r"url\(|@import", "".join(page.texts["style"]))


def test_the_page_itself_forbids_loads_and_foreign_scripts(pages):
    page = pages["data-bound", "en"]
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "http" not in policy and "'unsafe-eval'" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    for script in page.texts["script"][1:]:
        if script.strip():
            assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_untrusted_text_is_shown_and_does_not_act(timeline_of, tmp_path):
    from hotlap.facts.host import Host

    (tmp_path / "a.py").write_text(f"x = 1\ny = r'''{ATTACK}'''\n")
    place = SourceLine(str(tmp_path / "a.py"), 2, ATTACK, f"y = r'''{ATTACK}'''")
    finding = Finding(
        Cause.HOST_SYNC,
        Severity.CRITICAL,
        0.5,
        {"call": ATTACK},
        place,
        (Fix(ATTACK, ATTACK), Fix("num-workers", ATTACK)),
    )
    timeline = timeline_of({"data": 1.0}, lines=(HotLine(place, ATTACK, Stage.DATA, 0.5, 9, "worker"),))
    host = Host(ATTACK, ATTACK, 1, None, 1, 1, None, None, "fork", versions={ATTACK: ATTACK})
    job = Job((ATTACK, ATTACK), str(tmp_path), ATTACK)
    page = Page(Html().render(profile_view(job, host, [timeline], Diagnosis((finding,)), f"runs/{ATTACK}")))
    assert page.open == []
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert not any(
        tag == "img" or any(name.startswith("on") for name in attributes) for tag, attributes in page.tags
    )
    assert ATTACK in page.shown and "{{7*7}}" in page.shown
    assert page.data["words"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_says_what_the_view_says(pages, lang):
    page = pages["data-bound", lang]
    for figure in (
        "item-cpu-bound",
        "cache-dataset=memory",
        "40.9 ms",
        "9,850",
        "scaler.transform",
        "dataset.py:366",
        "54,272",
    ):
        assert figure in page.shown
    for command in (
        "hotlap explain item-cpu-bound",
        "+145 %",
        "AMD EPYC 7B13",
    ):
        assert command in page.shown


def test_chinese_pages_are_chinese(pages):
    page = pages["data-bound", "zh"]
    assert ("html", {"lang": "zh-CN"}) in page.tags
    assert "时间花在哪里" in page.shown and "Where the time goes" not in page.shown
    assert [stage["name"] for stage in page.data["timeline"]["stages"]][:2] == ["数据", "传输"]


def test_links_lead_to_sections_of_the_page(pages):
    for page in pages.values():
        ids = {attributes.get("id") for _, attributes in page.tags}
        links = [attributes["href"][1:] for tag, attributes in page.tags if tag == "a"]
        assert links and set(links) <= ids


def test_what_was_not_measured_is_said_and_not_plotted(pages):
    page = pages["nothing-measured", "en"]
    assert "not measured" in page.shown
    assert page.data["memory"] is page.data["workers"] is page.data["ranks"] is None
    assert "plot-memory" not in {attributes.get("id") for _, attributes in page.tags}


def test_source_is_shown_with_the_line_marked(timeline_of, view_of, tmp_path):
    (tmp_path / "data.py").write_text("a = 1\nb = 2\nc = slow(b)\nd = 4\n")
    line = HotLine(
        SourceLine(str(tmp_path / "data.py"), 3, "f", "c = slow(b)"), "slow", Stage.DATA, 0.9, 99, "worker"
    )
    page = Page(Html().render(view_of(timeline_of({"data": 1.0}, lines=(line,)), cwd=tmp_path)))
    assert "b = 2" in page.shown and "d = 4" in page.shown
    assert sum(attributes.get("class") == "here" for _, attributes in page.tags) == 1


def test_a_hundred_thousand_steps_stay_under_6_mb(timeline_of, view_of):
    mix = {stage.value: 1.0 + index for index, stage in enumerate(Stage)}
    text = Html().render(view_of(timeline_of(mix, 100_000, stall_every=999)))
    assert len(text.encode()) < 6_000_000
    assert len(Page(text).data["timeline"]["x"]) == 2000
