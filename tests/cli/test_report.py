"""`hotlap report`: a stored run, drawn again in every form, and a clear word where that cannot be."""

from __future__ import annotations

import json
import os
import stat

import pytest


def test_the_web_page_is_written_into_the_run_folder(hotlap, stored):
    (stored / "report.html").unlink()
    said = hotlap("report", "last")
    assert (said.code, said.out.strip()) == (0, f".hotlap/runs/{stored.name}/report.html")
    page = (stored / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "item-cpu-bound" in page


def test_profile_leaves_the_web_page_as_well(stored):
    assert "<!doctype html>" in (stored / "report.html").read_text(encoding="utf-8")[:100]


@pytest.mark.parametrize(
    ("output", "begins", "holds"),
    [
        ("terminal", "hotlap   python train.py", "Where the time goes"),
        ("markdown", "### hotlap: ", "| data |"),
        ("json", "{", '"verdict": '),
        ("perfetto", "{", '"traceEvents":'),
    ],
)
def test_other_forms_are_printed(hotlap, folder, output, begins, holds):
    said = hotlap("report", "last", "--format", output)
    assert said.code == 0 and said.out.startswith(begins) and holds in said.out


@pytest.mark.parametrize("output", ["terminal", "markdown", "json", "perfetto", "html"])
def test_every_form_goes_to_a_file_on_request(hotlap, folder, output):
    said = hotlap("report", "last", "--format", output, "--out", "made")
    assert (said.code, said.out) == (0, "made\n")
    assert "data" in (folder / "made").read_text(encoding="utf-8")


def test_json_is_what_profile_says(hotlap, stored):
    view = json.loads(hotlap("report", "last", "--format", "json").out)
    assert view["schema"] == 1 and view["step"]["n"] >= 30
    assert view["findings"][0]["cause"] == view["verdict"]
    assert sum(stage["share"] for stage in view["stages"].values()) == pytest.approx(1, abs=1e-6)
    assert view["run_shown"] == f".hotlap/runs/{stored.name}"


def test_a_run_is_found_by_folder_by_the_end_of_its_name_and_as_the_last(hotlap, stored):
    def by(name: str) -> dict:
        view = json.loads(hotlap("report", name, "--format", "json").out)
        return {key: value for key, value in view.items() if key not in ("run", "run_shown")}

    assert by("last") == by(str(stored)) == by(stored.name) == by("train")


def test_chinese(hotlap, folder):
    assert "时间花在哪里" in hotlap("report", "last", "--format", "terminal", "--lang", "zh").out
    hotlap("report", "last", "--lang", "zh", "--out", "zh.html")
    assert 'lang="zh-CN"' in (folder / "zh.html").read_text(encoding="utf-8")


def test_open_hands_the_page_to_the_browser(own_process, folder, stored):
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {folder}/opened\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    done = own_process("report", "last", "--open", BROWSER=f"{browser} %s")
    assert done.returncode == 0, done.stderr
    assert (folder / "opened").read_text().strip() == (stored / "report.html").as_uri()


def test_without_a_browser_the_page_is_still_there(own_process, stored):
    done = own_process("report", "last", "--open", BROWSER="/bin/false %s", PATH="/nowhere")
    assert done.returncode == 0 and "no browser could be started" in done.stderr
    assert done.stdout.strip().endswith("report.html")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nope",), "there is no run 'nope'.\n  -> the newest is .hotlap/runs/"),
        (("last", "--format", "htlm"), "no format is called 'htlm'.\n  -> did you mean 'html'?"),
        (("last", "--lang", "fr"), "no report in the language 'fr'.\n  -> known are: en, zh"),
        (("last", "--open", "--format", "json"), "--open shows the web page, not json."),
        (("last", "--out", "no/such/folder.html"), "no/such/folder.html cannot be written"),
        ((".",), "there is no job.json in .\n"),
    ],
)
def test_what_cannot_be_is_told_with_a_remedy(hotlap, folder, words, told):
    said = hotlap("report", *words)
    assert said.code == 2 and said.out == ""
    assert told.rstrip("\n") in said.err and "\n  -> " in said.err


def test_without_any_run_one_is_suggested(hotlap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = hotlap("report", "last")
    assert said.code == 2 and "hotlap profile train.py" in said.err


def tear(path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def flip(path, at: float) -> None:
    """A stretch of bytes: a single one may lie in the padding between two columns, where it damages nothing."""
    content = bytearray(path.read_bytes())
    for place in range(int(len(content) * at), int(len(content) * at) + 256):
        content[place] ^= 0xFF
    path.write_bytes(content)


def newer(path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda run: tear(run / "timeline.arrow", 0.5), "timeline.arrow is damaged"),
        (lambda run: tear(run / "timeline.arrow", 0), "timeline.arrow is damaged"),
        (lambda run: flip(run / "timeline.arrow", 0.5), "timeline.arrow is damaged"),
        (lambda run: (run / "timeline.arrow").unlink(), "there is no timeline.arrow in"),
        (lambda run: tear(run / "job.json", 0.5), "job.json is not readable JSON"),
        (lambda run: (run / "host.json").unlink(), "there is no host.json in"),
        (lambda run: newer(run / "job.json"), "job.json has schema 99, this hotlap reads up to 1"),
        (lambda run: (run / "diagnosis.json").unlink(), "hotlap diagnose"),
        (lambda run: tear(run / "diagnosis.json", 0.5), "hotlap diagnose"),
    ],
)
@pytest.mark.parametrize("output", ["json", "html"])
def test_a_damaged_run_is_told_apart(hotlap, stored, damage, told, output):
    (stored / "log.txt").write_text("")
    damage(stored)
    said = hotlap("report", str(stored), "--format", output)
    assert (said.code, said.out) == (2, "") and told in said.err and "\n  -> " in said.err


def test_a_run_that_saw_no_step_says_why(hotlap, folder):
    (folder / "idle.py").write_text("import torch\n")
    assert hotlap("profile", "--out", "idle", "idle.py").code == 0
    said = hotlap("report", "idle")
    assert said.code == 2 and "no training step was seen" in said.err


def test_a_run_without_a_steady_step_is_not_shown_as_a_slow_one(hotlap, stored, change_timeline):
    change_timeline(steady_from=10**6)
    said = hotlap("report", "last", "--format", "terminal")
    assert said.code == 2 and "holds no steady step" in said.err and "--steps 200" in said.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(hotlap, stored):
    stored.chmod(0o500)
    said = hotlap("report", "last")
    stored.chmod(0o700)
    assert said.code == 2 and "cannot be written" in said.err


def test_a_pipe_that_is_closed_early_is_no_fault(profiled):
    import subprocess
    import sys

    command = f"{sys.executable} -m hotlap report last --format json | head -c 1"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        command, shell=True, cwd=profiled, env=environment, capture_output=True, encoding="utf-8"
    )
    assert (done.stdout, done.stderr) == ("{", "")
