"""The HTML report in a real browser: the plots are drawn, in both themes, and the page's policy lets them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hotlap.facts.timeline import Stage
from hotlap.report.renderers.html import Html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1200,3000",
    "--virtual-time-budget=20000",
)  # fmt: skip
DARK, LIGHT = 0, 1
PAGE = {DARK: (0x0E, 0x13, 0x1A), LIGHT: (0xF5, 0xF6, 0xF8)}
BACKWARD = (0x72, 0x63, 0xCF)

pytestmark = [
    pytest.mark.runs,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here: the HTML report was not drawn in a browser"
    ),
]


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Opens a page with more flags and returns what the browser printed."""

    def run(page: Path, *more: str) -> str:
        profile = tmp_path_factory.mktemp("profile")
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *more, page.as_uri()]
        return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120).stdout

    return run


@pytest.fixture(scope="module")
def page_of(views, tmp_path_factory):
    """Writes the report of a view and returns its path."""

    def write(name: str, lang: str = "en") -> Path:
        path = tmp_path_factory.mktemp("page") / f"{name}-{lang}.html"
        path.write_text(Html().render(views[name], lang), encoding="utf-8")
        return path

    return write


def drawn(dom: str) -> dict[str, str]:
    """The plots of a page that hold a drawing, by name."""
    page = dom.split('<script type="application/json"')[0]  # behind it stands the source of plotly.js
    parts = re.split(r'id="plot-(\w+)"', page)[1:]
    return {name: body for name, body in zip(parts[::2], parts[1::2], strict=True) if "main-svg" in body}


def test_the_plots_are_drawn(browse, page_of):
    dom = browse(page_of("data-bound"), "--dump-dom")
    assert re.search(r"<html[^>]* data-drawn", dom), "the page's script did not reach its end"
    plots = drawn(dom)
    assert set(plots) == {"timeline", "experiments", "workers", "memory", "cpu"}
    for stage in ("data", "forward", "backward", ["optimizer", "~"][0], "longest step"):
        assert f">{stage}</text>" in plots["timeline"]
    assert plots["timeline"].count('class="js-fill"') >= 6
    assert ">worker 1" in plots["workers"]
    buttons = set(re.findall(r'data-title="([^"]+)"', plots["timeline"]))
    assert len(buttons) == 6, "a button that nobody asked for"


def test_ranks_are_drawn_in_chinese(browse, page_of):
    plots = drawn(browse(page_of("multi-rank", "zh"), "--dump-dom"))
    assert "ranks" in plots and ">数据</text>" in plots["ranks"]


def test_a_page_without_measurements_draws_what_there_is(browse, page_of):
    dom = browse(page_of("nothing-measured"), "--dump-dom")
    assert re.search(r"<html[^>]* data-drawn", dom) and set(drawn(dom)) == {"timeline"}


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_picture_has_the_plots_in_it(browse, page_of, tmp_path, theme):
    image = pytest.importorskip("PIL.Image")
    shot = tmp_path / "page.png"
    browse(page_of("data-bound"), f"--screenshot={shot}", f"--blink-settings=preferredColorScheme={theme}")
    with image.open(shot) as opened:
        picture = opened.convert("RGB")
    assert picture.getpixel((5, 5)) == PAGE[theme]
    # The stage's bars in the table are a few thousand pixels; its area in the plot is many more.
    counts = {colour: count for count, colour in picture.getcolors(maxcolors=2**24)}
    assert counts[BACKWARD] > 10_000


def test_a_hundred_thousand_steps_are_drawn(browse, timeline_of, view_of, tmp_path):
    mix = {stage.value: 1.0 + index for index, stage in enumerate(Stage)}
    page = tmp_path / "long.html"
    page.write_text(Html().render(view_of(timeline_of(mix, 100_000, stall_every=999))), encoding="utf-8")
    assert page.stat().st_size < 6_000_000
    dom = browse(page, "--dump-dom")
    assert re.search(r"<html[^>]* data-drawn", dom)
    plot = drawn(dom)["timeline"]
    assert all(f">{stage.value}</text>" in plot for stage in Stage)
