"""What was tried on the job, in every output and in both languages; nothing in them is a prediction."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from hotlap.cli import build_parser
from hotlap.facts import codec
from hotlap.facts.diagnosis import Basis, Cause, Diagnosis, Finding, Fix, Interval, Severity
from hotlap.facts.experiment import FREE_INPUT, Experiment, Experiments, ExperimentState
from hotlap.plan.catalogue import all_knobs, from_words
from hotlap.report import advice, charts, experiments, words
from hotlap.report.locale import Phrases, texts
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.markdown import Markdown
from hotlap.report.renderers.terminal import Terminal
from hotlap.report.sections import build

EN, ZH = Phrases("en"), Phrases("zh")
MIX = {"data": 4.0, "forward": 12.0, "backward": 20.0}
PREDICTED = re.compile("predict|expected|guides say|预计|预测", re.IGNORECASE)


def one(state: ExperimentState, gain: float | None = None, knob: str = "precision", **more) -> Experiment:
    interval = None if gain is None else Interval(gain - 0.01, gain + 0.01)
    return Experiment(knob, "bf16", state, gain, interval, **{"numerics": "rounding", **more})


def sections(view, say=EN):
    return {section.id: section for section in build(view, say)}


@pytest.fixture
def view(timeline_of, view_of):
    """Makes a view of some experiments on a job without findings."""

    def make(*tried: Experiment, diagnosis: Diagnosis = Diagnosis(), ended: str = ""):  # noqa: B008
        return view_of(timeline_of(MIX), diagnosis=diagnosis, experiments=Experiments(tried, 12.0, ended))

    return make


def test_the_view_has_the_keys_of_the_contract(views):
    rows = views["data-bound"]["experiments"]
    contract = {
        "knob",
        "setting",
        "gain",
        "interval",
        "numerics",
        "state",
        "reason",
        "blocks",
        "build_s",
        "apply",
    }
    assert all(contract <= set(row) for row in rows)
    assert views["data-bound"]["experiments_seconds"] == 48.2
    assert views["data-bound"]["experiments_ended"] == "the time for experiments was up"


def test_no_experiments_are_not_none_that_gained(timeline_of, view_of):
    view = view_of(timeline_of(MIX))
    assert view["experiments"] is view["experiments_ended"] is view["experiments_seconds"] is None
    assert not {"tried", "not_tried"} & set(sections(view))
    assert words.verdict(view, EN) == EN("verdict.healthy")
    assert charts.tried(view, EN) is None


def test_faster_ones_come_first_and_the_largest_gain_first(views):
    rows = [
        (row["state"], row["gain"]) for row in views["data-bound"]["experiments"] if row["gain"] is not None
    ]
    states = [state for state, _ in rows]
    assert states == ["faster"] * 3 + ["no-gain"] * 4 + ["undecided"]
    gains = [gain for state, gain in rows if state == "no-gain"]
    assert gains == sorted(gains, reverse=True)


def test_equal_gains_are_ordered_by_the_lower_bound(view):
    wide = replace(one(ExperimentState.FASTER, 0.2, "compile"), interval=Interval(0.05, 0.35))
    narrow = one(ExperimentState.FASTER, 0.2)
    assert [row["knob"] for row in view(wide, narrow)["experiments"]] == ["precision", "compile"]


def test_what_was_measured_can_be_applied_as_it_stands(view):
    beside = one(
        ExperimentState.FASTER, 0.3, "num-workers", beside={"persistent-workers": True, "prefetch-factor": 4}
    )
    made = view(
        replace(beside, setting="2"),
        one(ExperimentState.REFUSED, reason="no"),
        one(ExperimentState.FASTER, 2.0, FREE_INPUT),
    )
    commands = {row["knob"]: row["apply"] for row in made["experiments"]}
    assert commands["precision"] is None and commands[FREE_INPUT] is None
    line = commands["num-workers"]
    assert line == (
        "hotlap run --set num-workers=2 --set persistent-workers=true --set prefetch-factor=4 train.py --epochs 3"
    )
    options = build_parser().parse_args(line.split()[1:8])
    assert from_words(options.set, all_knobs()) == {
        "num-workers": 2, "persistent-workers": True, "prefetch-factor": 4,
    }  # fmt: skip
    assert "--allow" not in line, "run takes what is set by name, and refuses --allow without a preset"


def test_the_table_says_gain_interval_result_numbers_and_command(views):
    section = sections(views["data-bound"])["tried"]
    assert section.table.rows == (
        ("cache-dataset=memory", "+145 % (120 to 170)", "faster", "bit-equal",
         "hotlap run --set cache-dataset=memory train.py --epochs 3"),
        ("compile=default", "+12 % (8 to 15)", "faster", "rounding",
         "hotlap run --set compile=default train.py --epochs 3"),
        ("batch-size=1024 scale-lr=linear", "+4 % (-1 to 9)", "undecided", "statistical", ""),
    )  # fmt: skip


def test_a_few_without_a_gain_have_rows_and_many_are_one_line(view):
    few = view(*(one(ExperimentState.NO_GAIN, 0.01, f"knob-{number}") for number in range(3)))
    assert len(sections(few)["tried"].table.rows) == 3
    many = view(*(one(ExperimentState.NO_GAIN, 0.01, f"knob-{number}") for number in range(4)))
    section = sections(many)["tried"]
    assert section.table is None
    assert section.notes[0].startswith("No gain (less than 3 %): knob-0=bf16 (+1 %), knob-1=bf16 (+1 %), ")


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (0.5, "Free input (replayed batches): at most +50 % (49 to 51)."),
        (-0.01, "does not slow this job down"),
    ],
)
def test_free_input_is_a_bound_and_no_change(view, gain, said):
    made = view(one(ExperimentState.NO_GAIN, 0.001), one(ExperimentState.FASTER, gain, FREE_INPUT))
    section = sections(made)["tried"]
    assert said in " ".join(section.notes)
    assert [row[0] for row in section.table.rows] == ["precision=bf16"]
    assert words.verdict(made, EN) == "Healthy: 1 change was tried on this job; none brings 3 %."
    assert charts.tried(made, EN)["states"] == ["no-gain", "bound"]
    assert "free_input" not in sections({**made, "free_input": {"gain": 1.0}}), "said once"


def test_building_is_said_with_the_steps_that_pay_it_back(view):
    made = view(one(ExperimentState.FASTER, 1.0, "compile", build_s=9.0))
    assert made["experiments"][0]["break_even_steps"] == pytest.approx(9000 / 18, rel=0.02)
    assert re.search(r"compile=bf16: building took 9.00 s; paid back after \d\d\d steps\.",
                     " ".join(sections(made)["tried"].notes))  # fmt: skip
    slower = view(one(ExperimentState.NO_GAIN, -0.2, "compile", build_s=9.0))
    assert slower["experiments"][0]["break_even_steps"] is None


@pytest.mark.parametrize(
    ("tried", "said"),
    [
        ([one(ExperimentState.NO_GAIN, 0.0)] * 11, "Healthy: 11 changes were tried on this job; none brings 3 %."),
        ([one(ExperimentState.NO_GAIN, 0.0), one(ExperimentState.UNDECIDED, 0.04)],
         "Healthy: 2 changes were tried on this job; none was shown to bring 3 %, and 1 remains undecided."),
        ([one(ExperimentState.NO_GAIN, 0.0), one(ExperimentState.UNDECIDED, 0.42, blocks=1)],
         "Healthy: 2 changes were tried on this job; none was shown to bring 3 %, and 1 remains undecided."),
        ([one(ExperimentState.UNDECIDED, 0.42, blocks=8), one(ExperimentState.NO_GAIN, 0.0)],
         "2 changes were tried on this job, and none was shown to bring 3 %. "
         "Not decided: precision=bf16, measured +42 % (41 to 43)."),
        ([one(ExperimentState.FASTER, 0.38), one(ExperimentState.NO_GAIN, 0.0)],
         "No cause was found, but of 2 changes tried on this job precision=bf16 is faster: +38 %."),
        ([one(ExperimentState.NOT_TRIED, reason="the time for experiments was up")], EN("verdict.healthy")),
    ],
)  # fmt: skip
def test_healthy_is_a_measured_result(view, tried, said):
    assert words.verdict(view(*tried), EN) == said


def test_a_healthy_job_with_a_faster_change_is_not_told_to_stay(view):
    assert words.next_step(view(one(ExperimentState.FASTER, 0.38)), EN) == EN("next.faster")
    assert words.next_step(view(one(ExperimentState.NO_GAIN, 0.0)), EN) == EN("next.healthy")
    assert words.next_step(view(one(ExperimentState.UNDECIDED, 0.42, blocks=8)), EN) == EN("next.untried")
    commands = [each.line for each in advice.next_commands(view(one(ExperimentState.FASTER, 0.38)))]
    assert commands[0] == "hotlap run --set precision=bf16 train.py --epochs 3"


def test_what_was_not_tried_is_grouped_by_its_reason(views):
    section = sections(views["data-bound"])["not_tried"]
    assert section.table.rows == (
        ("log-every=50, logging-heavy (train.py:120)", "nothing asked for it"),
        ("persistent-workers=True, precision=bf16", "the time for experiments was up"),
    )
    chinese = sections(views["data-bound"], ZH)["not_tried"]
    assert chinese.table.rows[1][1] == "实验时间已用完"


@pytest.mark.parametrize(
    ("experiments", "reason"),
    [(None, "no experiments were made"), (Experiments(), "there was no experiment for it")],
)
def test_a_hypothesis_without_an_experiment_is_listed_with_its_cause(
    timeline_of, view_of, experiments, reason
):
    found = Diagnosis(untested=(Finding(Cause.PRECISION_UNUSED, Severity.WARNING, 0.3),))
    view = view_of(timeline_of(MIX), diagnosis=found, experiments=experiments)
    assert sections(view)["not_tried"].table.rows == (("precision-unused", reason),)
    assert view["findings"] == [] and view["verdict"] == "healthy"


def test_without_a_measured_change_no_job_is_called_healthy(view):
    made = view(
        one(ExperimentState.NOT_TRIED, reason="the time for experiments was up"),
        one(ExperimentState.FASTER, 0.2, knob=FREE_INPUT),
        diagnosis=Diagnosis(
            untested=(
                Finding(Cause.PRECISION_UNUSED, Severity.WARNING, 0.3, fixes=(Fix("precision", "bf16"),)),
            )
        ),
        ended="the script failed with TypeError: no number (train.py:3) under free-input=True",
    )
    for say, word in ((EN, "Healthy"), (ZH, "健康")):
        verdict = words.verdict(made, say)
        assert word not in verdict and "TypeError: no number (train.py:3)" in verdict
        assert words.next_step(made, say) == say("next.untried")
    ((names, reason),) = sections(made)["not_tried"].table.rows
    assert names == "precision=bf16, precision-unused" and reason == "the time for experiments was up"
    assert words.verdict(view(ended="all are decided"), EN) == EN("verdict.healthy")
    suspected = {**view(ended="all are decided"), "experiments": None, "untested": made["untested"]}
    assert words.verdict(suspected, EN) == EN("verdict.untried", reason="no experiments were made")


def test_a_refused_change_that_was_measured_is_not_shown_as_tried(view):
    made = view(one(ExperimentState.REFUSED, 0.5, reason="the job ended while it was tried"))
    assert "tried" not in sections(made)
    assert sections(made)["not_tried"].table.rows == (("precision=bf16", "the job ended while it was tried"),)


def test_a_finding_says_what_it_rests_on(view):
    fixes = (
        Fix("tf32", "true", interval=Interval(0.01, 0.2), measured_gain=0.1),
        Fix("precision", "bf16", interval=Interval(0.31, 0.45), measured_gain=0.38),
        Fix("compile", "default"),
    )
    tried = Finding(Cause.PRECISION_UNUSED, Severity.WARNING, 0.275, {}, None, fixes, Basis.EXPERIMENT)
    exposed = Finding(Cause.VALIDATION_HEAVY, Severity.WARNING, 0.4)
    made = view(diagnosis=Diagnosis((tried, exposed)))
    assert words.verdict(made, EN).endswith(
        "Measured: +38 % (31 to 45) with precision=bf16 (precision-unused)."
    )
    assert words.verdict(made, ZH).endswith(
        "实测：precision=bf16 使吞吐量 +38 %（31 至 45）（precision-unused）。"
    )
    assert words.also(made, EN) == "Also found: validation-heavy (at most 40 %)."
    assert words.headline(made["findings"][1], EN).endswith("At most 40 % of each step (validation-heavy).")
    assert [each["knob"] for each in words.advised(made["findings"][0])] == ["tf32", "precision"]


def test_a_prediction_of_an_old_run_is_not_shown(view):
    predicted = Fix("num-workers", "4", 0.5, Interval(0.4, 0.6))
    old = Finding(Cause.WORKERS_TOO_FEW, Severity.WARNING, 0.4, {}, None, (predicted,))
    (fix,) = view(diagnosis=Diagnosis((old,)))["findings"][0]["fixes"]
    assert fix == {"knob": "num-workers", "setting": "4", "measured_gain": None, "interval": None}


@pytest.mark.parametrize("renderer", [Terminal, Markdown, Html])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_output_shows_what_was_tried_and_what_was_not(views, renderer, lang):
    say, page = Phrases(lang), renderer().render(views["data-bound"], lang)
    shown = page.split('<script type="application/json"')[0]
    for text in (
        say("section.tried"),
        say("section.not_tried"),
        "compile=default",
        "+145 %",
        say("numerics.rounding"),
    ):
        assert text in shown
    for text in ("hotlap run --set compile=default train.py --epochs 3", "3,842", "logging-heavy"):
        assert text in shown
    assert not PREDICTED.search(shown.split("<style>")[0] + shown.split("</style>")[-1])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_only_a_search_speaks_of_predictions(lang):
    assert {key for key, text in texts(lang).items() if PREDICTED.search(text)} <= {
        "column.predicted",
        "tuned.notes",
    }


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_long_commands_and_settings_fit_a_terminal_and_can_be_copied(timeline_of, view_of, lang):
    beside = {"scale-lr": "linear", "batch-size": 4096}
    long = replace(
        one(ExperimentState.FASTER, 12.34, "loader", beside=beside), setting="a_factory_with_a_name:build_it"
    )
    made = view_of(
        timeline_of(MIX),
        experiments=Experiments((long, one(ExperimentState.NOT_TRIED, reason="why " * 60)), 9.0),
    )
    text = Terminal().render(made, lang)
    assert max(cell_len(line) for line in text.splitlines()) <= 100
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  hotlap run --set loader"))
    command = " ".join(line.strip().removesuffix("\\").strip() for line in lines[first : first + 2])
    assert lines[first].endswith(" \\") and command == made["experiments"][0]["apply"]


def test_the_plot_has_gains_and_intervals_in_percent(views):
    plot = charts.tried(views["data-bound"], EN)
    assert plot["names"][:2] == ["cache-dataset=memory", "compile=default"]
    assert plot["names"][-1] == "free input (at most)" and plot["states"][-1] == "bound"
    assert (plot["gain"][0], plot["low"][0], plot["high"][0]) == (145.0, 120.0, 170.0)
    assert len({len(plot[key]) for key in ("names", "states", "gain", "low", "high", "text")}) == 1


def test_stored_experiments_are_read_as_they_were_written(tmp_path, timeline_of, view_of):
    from hotlap.pipeline import EXPERIMENTS, _stored_experiments

    assert _stored_experiments(tmp_path) is None
    made = Experiments(
        (one(ExperimentState.FASTER, 0.3, beside={"scale-lr": "linear"}, build_s=2.0),),
        3.0,
        "all are decided",
    )
    codec.write_json(tmp_path / EXPERIMENTS, made)
    read = _stored_experiments(tmp_path)
    assert read == made
    view = view_of(timeline_of(MIX), experiments=read)
    assert json.loads(json.dumps(view)) == view and experiments.tried(view)[0]["gain"] == 0.3
