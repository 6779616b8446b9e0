"""What the terminal shows: golden files, and the promises that hold for all of them."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Severity
from hotlap.facts.timeline import HotLine, SourceLine, Stage, WorkerFacts
from hotlap.report.renderers import terminal
from hotlap.report.sheet import wants_colour

NAMES = ("data-bound", "healthy", "multi-rank", "nothing-measured")


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_golden(views, golden, name, lang):
    golden(f"terminal-{name}-{lang}.txt", terminal.Terminal().render(views[name], lang))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_fits_100_columns_and_has_no_colour(views, name, lang):
    text = terminal.draw(views[name], lang)
    assert max(cell_len(line) for line in text.splitlines()) <= 100
    assert "\x1b" not in text and not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_verdict_why_and_next_come_first(views, name):
    text = terminal.draw(views[name])
    order = [text.index(f"\n{word}") for word in ("Verdict ", "Why ", "Next ", "Where the time goes")]
    assert order == sorted(order)


def test_an_ascii_terminal_gets_ascii(views):
    assert terminal.draw(views["data-bound"], ascii_only=True).isascii()
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.show(views["data-bound"], "zh", stream)
    stream.seek(0)
    assert "######" in stream.read()


class _Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_colour_only_where_a_terminal_wants_it(views, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen, pipe = _Tty(), io.StringIO()
    terminal.show(views["data-bound"], stream=screen)
    terminal.show(views["data-bound"], stream=pipe)
    assert "\x1b[" in screen.getvalue() and "\x1b" not in pipe.getvalue()
    without_codes = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert [line.rstrip() for line in without_codes.splitlines()] == pipe.getvalue().splitlines()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert not wants_colour(_Tty())


def test_code_cannot_act_on_the_terminal(timeline_of, view_of):
    place = SourceLine("/home/ada/printer/a[red].py", 3, "f", "print('\x1b]0;owned\x07') # [bold]x[/bold]")
    finding = Finding(Cause.HOST_SYNC, Severity.CRITICAL, 0.5, {"call": "\x1b[2J"}, place)
    line = HotLine(place, "\x1b[31m", Stage.DATA, 0.5, 9, "worker")
    view = view_of(timeline_of({"data": 1.0}, lines=(line,)), diagnosis=Diagnosis((finding,)))
    text = terminal.draw(view)
    assert "\x1b" not in text and "\x07" not in text
    assert "a[red].py:3" in text and "[bold]x[/bold]" in text


def test_long_tables_end_with_how_much_is_left_out(timeline_of, view_of):
    workers = tuple(WorkerFacts(0, number, 10, 100, 2.0, 1.5, 0.5, 7.5) for number in range(20))
    text = terminal.draw(view_of(timeline_of({"data": 1.0}, workers=workers)))
    assert "and 12 more" in text


def test_every_stage_that_held_time_has_a_row(timeline_of, view_of):
    text = terminal.draw(view_of(timeline_of({stage.value: 1.0 for stage in Stage})))
    assert all(f"\n  {stage.value} " in text for stage in Stage)


def test_a_line_of_source_stays_on_one_line(timeline_of, view_of):
    place = SourceLine("/home/ada/printer/a.py", 3, "f", "x = " + "long_" * 40)
    finding = Finding(Cause.HOST_SYNC, Severity.CRITICAL, 0.5, {}, place)
    text = terminal.draw(
        view_of(timeline_of({"data": 1.0}), diagnosis=Diagnosis((finding,))), ascii_only=True
    )
    code = [line for line in text.splitlines() if "long_" in line]
    assert len(code) == 1 and code[0].endswith(" ...") and text.isascii()


def test_an_unseen_stage_has_no_row(timeline_of, view_of):
    text = terminal.draw(view_of(timeline_of({"data": 1.0, "checkpoint": 0.0, "forward": 1.0})))
    assert "checkpoint" not in text


def test_wide_words_do_not_break_the_width(timeline_of, view_of):
    place = SourceLine("/elsewhere/" + "long_" * 40 + ".py", 1, "f" * 150, "x" * 300)
    finding = Finding(Cause.HOST_SYNC, Severity.CRITICAL, 0.5, {"call": "y" * 200}, place)
    text = terminal.draw(view_of(timeline_of({"data": 1.0}), diagnosis=Diagnosis((finding,))))
    assert max(cell_len(line) for line in text.splitlines()) <= 100


@pytest.mark.runs
@pytest.mark.parametrize("heavy", ["torch", "numpy", "rich", "plotly", "jinja2", "yaml"])
def test_importing_the_report_imports_nothing_heavy(heavy):
    code = (
        "import sys, hotlap.report.view\n"
        "from hotlap.report.renderers import html, json, markdown, perfetto, terminal\n"
        f"sys.exit('{heavy}' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
    )


@pytest.mark.runs
def test_drawing_needs_neither_torch_nor_numpy(views, tmp_path):
    from hotlap.report.renderers.json import Json

    (tmp_path / "view.json").write_text(Json().render(views["data-bound"]))
    code = (
        "import json, pathlib, sys\n"
        "from hotlap.report.renderers import terminal\n"
        f"terminal.show(json.loads(pathlib.Path({str(tmp_path / 'view.json')!r}).read_text()), 'zh')\n"
        "sys.exit(bool({'torch', 'numpy', 'plotly', 'jinja2'} & set(sys.modules)))"
    )
    env = {"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"}
    drawn = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, encoding="utf-8")
    assert drawn.returncode == 0 and drawn.stdout == terminal.draw(views["data-bound"], "zh")
