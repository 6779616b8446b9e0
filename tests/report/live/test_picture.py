"""A live view in words and drawn: what is there, what is not measured, both languages, and texts of others."""

from __future__ import annotations

import pytest

from hotlap.report.live.picture import LivePages, draw, picture, points, sparks
from hotlap.report.locale import LANGUAGES, Phrases
from hotlap.watch.collapse import State as PosteriorState
from hotlap.watch.live.reader import RunState

WORDS = {
    "loss-spike": ("calm", "spiked", "diverges"),
    "not-finite": ("finite", "recovered", "not-finite"),
    "gradient-norm": ("steady", "explodes", "vanishes", "zero"),
    "throughput-drift": ("learning", "steady", "slower"),
    "memory-growth": ("steady", "grows"),
    "gpu-memory-growth": ("steady", "grows"),
    "posterior": tuple(PosteriorState),
}


@pytest.fixture
def view():
    return {
        "state": "running", "run": "/runs/1", "job": {"name": "train", "shown": "python train.py"}, "pid": 7,
        "age_s": 0.1, "steps": 1234, "exit_code": None, "problems": [], "pictures": [],
        "lately": {
            "steps": 100, "seconds": 2.0, "steps_per_s": 50.0, "samples_per_s": 1600.0, "step_ms": 19.5,
            "p95_ms": 31.0, "stages": {"data": 0.6, "forward": 0.1, "backward": 0.3, "checkpoint": 0.0},
        },
        "drift": {
            "state": "slower", "since": 900, "now": 50.0, "best": 80.0, "change": -0.375,
            "series": [[1, 2.0], [2, 4.0]],
        },
        "usage": {"rss": 2**30, "tree_rss": 2**31, "cpu": 1.0, "workers_cpu": 0.5, "foreign_cpu": 0.25},
        "progress": {"done": 1234, "total": 5000, "epoch": None, "left_s": 75.0},
        "monitors": {
            "loss-spike": {"state": "calm", "gravity": "ok", "figures": {"usual": 0.5}},
            "not-finite": {
                "state": "not-finite", "gravity": "critical", "since": 1200,
                "figures": {"what": "loss", "bad": 3, "looks": 1234},
            },
        },
        "cost": {"share": 0.01, "spent": 0.004},
    }  # fmt: skip


def test_everything_is_said(view):
    drawn = draw(view)
    for words in (
        "python train.py", "Running.", "1,234 steps", "50.0 steps/s", "1,600 samples/s", "19.5 ms", "1 min 15 s left",
        "1,234 of 5,000 steps (25 %)", "data", "60 %", "since step 900: -38 %", "80.0 steps/s", "2.00 GiB",
        "the loss is not finite since step 1,200; 3 of 1,234 looks", "calm around 0.5", "0.4 % of the time",
    ):  # fmt: skip
        assert words in drawn, words
    assert "checkpoint" not in drawn, "what took no time has no row"
    assert drawn.index("not finite since") < drawn.index("calm"), "the gravest first"
    assert max(len(line) for line in drawn.splitlines()) <= 100


def test_chinese_has_the_same_figures(view):
    drawn = draw(view, "zh")
    for words in ("正在运行", "1,234", "数据", "自第 900 步起", "损失非有限", "0.4 %"):
        assert words in drawn, words


def test_what_is_not_there_is_said_to_be_not_measured():
    bare = {"state": "waiting", "run": "/runs/1", "steps": 0, "monitors": {}, "problems": ["job.json: torn"]}
    drawn = draw(bare)
    for words in (
        "No training step yet",
        "Not measured",
        "hotlap run --watch",
        "is not known",
        "job.json: torn",
    ):
        assert words in drawn, words


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_state_and_every_word_of_a_monitor_has_its_sentence(lang):
    say = Phrases(lang)
    assert [state for state in RunState if f"live.state.{state}" not in say] == []
    assert [
        f"{name}.{state}"
        for name, states in WORDS.items()
        for state in states
        if f"monitor.{name}.{state}" not in say
    ] == []


def test_the_tone_is_that_of_the_gravest(view):
    say = Phrases()
    assert picture(view, say).tone == "critical"
    assert picture(view, say).alarm.startswith("finite numbers: the loss is not finite since step 1,200")
    del view["monitors"]["not-finite"]
    assert picture(view, say).alarm == ""
    assert picture(view, say).tone == "good"
    assert picture(view | {"state": "ended"}, say).tone == "none"
    assert picture(view | {"state": "ended", "exit_code": 1}, say).tone == "critical"
    assert "exit code 137" in picture(view | {"state": "ended", "exit_code": 137}, say).state
    assert picture(view | {"state": "killed"}, say).tone == "critical"


def test_a_monitor_of_somebody_else_is_shown_as_it_is(view):
    view["monitors"] = {"their-own": {"state": "odd\x1b[31m", "gravity": "strange"}}
    drawn = draw(view)
    assert "their-own" in drawn and "odd" in drawn and "\x1b" not in drawn


def test_the_page_escapes_and_draws(view):
    view["job"]["shown"] = "<script>alert(1)</script>"
    page = LivePages("zh").whole(view, "t&ken")
    assert 'lang="zh"' in page and "<script>alert" not in page and "&lt;script&gt;" in page
    assert '<rect width="60.00"' in page and "polyline" in page
    assert 'src="/picture/' not in page
    assert LivePages().part(view | {"pictures": ["a.png"]}, "t&ken").count("token=t%26ken") == 1


def test_small_plots():
    assert points(()) == points((1.0,)) == ""
    assert points((0.0, 10.0)) == "0.0,59.0 600.0,1.0"
    assert sparks((0.0, 1.0, 2.0)) == "▁▄█" and sparks((0.0, 0.0)) == "▁▁"
