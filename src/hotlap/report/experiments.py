"""The plain data of experiments: each change that was tried on the job, and what was not tried with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hotlap.facts.codec import to_plain
from hotlap.facts.diagnosis import Finding
from hotlap.facts.experiment import ALL_DECIDED, FREE_INPUT, Experiment, Experiments, ExperimentState
from hotlap.report.advice import apply_command, settings

View = Mapping[str, Any]
MEASURED = (
    ExperimentState.FASTER,
    ExperimentState.NO_GAIN,
    ExperimentState.UNDECIDED,
)  # in the order of a report


def experiments_view(
    experiments: Experiments | None, job: View, step_ms: float | None
) -> dict[str, list[dict[str, Any]] | float | str | None]:
    """The three keys of a view; all None where no experiments were made."""
    if experiments is None:
        return {"experiments": None, "experiments_ended": None, "experiments_seconds": None}
    return {
        "experiments": [_experiment(each, job, step_ms) for each in sorted(experiments.tried, key=_order)],
        "experiments_ended": experiments.ended,
        "experiments_seconds": experiments.seconds,
    }


def fix_view(fix: View) -> dict[str, Any]:
    """A fix with its measured gain. Readers of the old `predicted_gain` find the same number; never a prediction."""
    rest = {key: value for key, value in fix.items() if key != "predicted_gain"}
    if fix["measured_gain"] is None:
        return {**rest, "interval": None}
    return {**rest, "predicted_gain": fix["measured_gain"]}


def untested_reason(hypothesis: Finding, experiments: Experiments | None) -> str | None:
    """Why the experiment of a hypothesis was not made; None where nothing is known of it."""
    if experiments is None:
        return None
    knobs = [fix.knob for fix in hypothesis.fixes]
    reasons = [each.reason for each in experiments.of(*knobs) if each.reason]
    return reasons[0] if reasons else None


def of_state(view: View, *states: ExperimentState) -> list[View]:
    """Changes that were measured and are in one of these states, the largest gain first."""
    return [each for each in view["experiments"] or () if is_change(each) and each["state"] in states]


def tried(view: View) -> list[View]:
    """All changes that were measured."""
    return of_state(view, *MEASURED)


def not_tried(view: View) -> list[View]:
    """What was refused, or never took a turn."""
    return [
        each for each in view["experiments"] or () if each["gain"] is None or each["state"] not in MEASURED
    ]


def none_made(view: View) -> str | None:
    """Why no change was measured although there was time for experiments; None where some were, or they were off."""
    ended: str | None = view["experiments_ended"]
    return None if tried(view) or ended == ALL_DECIDED else ended


def free_input(view: View) -> View | None:
    """The most that any change of the input can bring, where it was measured."""
    rows: Sequence[View] = view["experiments"] or ()
    return next((each for each in rows if each["knob"] == FREE_INPUT and each["gain"] is not None), None)


def is_change(each: View) -> bool:
    """Free input is a bound, and no change that anyone can make."""
    return each["knob"] != FREE_INPUT and each["gain"] is not None


def change(each: View) -> str:
    """A change as one types it behind `--set`, with what was switched together with it."""
    return " ".join(settings(each))


def _order(each: Experiment) -> tuple[int, float, float]:
    """Faster ones first; within a state by gain, and among equals by the lower bound."""
    place = MEASURED.index(each.state) if each.state in MEASURED else len(MEASURED)
    return place, -(each.gain or 0.0), -(each.interval.low if each.interval else 0.0)


def _experiment(each: Experiment, job: View, step_ms: float | None) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(each)
    is_measured = each.gain is not None and each.state in MEASURED
    command = apply_command(plain, job) if is_measured else None
    return {
        **plain,
        "break_even_steps": _break_even(each, step_ms),
        "apply": command.line if command else None,
    }


def _break_even(each: Experiment, step_ms: float | None) -> int | None:
    """After how many steps the time of building is saved again."""
    if not each.build_s or not each.saved or not step_ms or each.state is not ExperimentState.FASTER:
        return None
    return max(1, round(each.build_s * 1e3 / (each.saved * step_ms)))
