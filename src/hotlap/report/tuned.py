"""The plain data of a search for a plan: what `hotlap tune --json` prints and what every renderer draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Any, cast

from hotlap.facts import codec
from hotlap.facts.counting import counted, knows
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Ruling, Tuning, Verdict
from hotlap.report.plain import finite
from hotlap.report.view import from_here

KIND = "tuning"


@dataclass(frozen=True)
class Searched:
    """A search with all that its folder holds of it."""

    tuning: Tuning
    job: Job
    host: Host
    folder: str
    trials: Sequence[Trial] = ()


def tuning_view(searched: Searched) -> dict[str, Any]:
    """All facts of the search, with the ablation and the reasons put together of them."""
    tuning, trials = searched.tuning, searched.trials
    plain: dict[str, Any] = codec.to_plain(tuning)
    view = {
        "schema": codec.SCHEMA,
        "kind": KIND,
        "run": searched.folder,
        "run_shown": from_here(searched.folder),
        "job": {**codec.to_plain(searched.job), "shown": searched.job.shown},
        "command": searched.job.shown,
        "host": {**codec.to_plain(searched.host), "named": searched.host.named},
        **plain,
        "throughput": _throughput(tuning, trials),
        "ablation": _ablation(tuning),
        "rejected": [codec.to_plain(each) for each in _rejected(tuning.verdicts)],
        "stages": {
            "before": _stages(trials, {}),
            "after": _stages(trials, tuning.plan.settings) if tuning.plan.settings else None,
        },
        "ledger": [_trial(each, tuning.baseline.counts) for each in trials],
    }
    return cast(dict[str, Any], finite(view))


def _throughput(tuning: Tuning, trials: Sequence[Trial]) -> dict[str, Any]:
    """Medians over all trials of the baseline and of the plan; of the one that is known where there is no ledger."""
    after = tuning.tuned if tuning.plan.settings else None
    return {
        "counts": tuning.baseline.counts,
        "before": _middle(trials, {}, tuning.baseline),
        "after": _middle(trials, tuning.plan.settings, after) if after else None,
    }


def _middle(trials: Sequence[Trial], settings: Mapping[str, Any], known: Figures) -> float:
    rates = [_rate(each.figures, known.counts) for each in _finished(trials, settings)]
    return median([rate for rate in rates if rate is not None] or [known.throughput])


def _rate(figures: Figures | None, counts: str) -> float | None:
    """None where nothing was measured, or not in this count."""
    return counted(figures, counts).throughput if figures and knows(figures, counts) else None


def _finished(trials: Sequence[Trial], settings: Mapping[str, Any]) -> Iterable[Trial]:
    return (
        each for each in trials if each.status is Status.DONE and dict(each.plan.settings) == dict(settings)
    )


def _ablation(tuning: Tuning) -> dict[str, Any]:
    """Each kept setting in the order in which it was accepted, alone, and all together."""
    kept = [each for each in _last(tuning.verdicts) if each.ruling is Ruling.KEEP]
    guesses = [each.predicted for each in kept if each.predicted is not None]
    complete = bool(kept) and len(guesses) == len(kept)
    return {
        "settings": [{**codec.to_plain(each), "alone": _alone(each, tuning)} for each in kept],
        "together": {
            "gain": codec.to_plain(tuning.gain),
            "predicted": prod(1.0 + each for each in guesses) - 1.0 if complete else None,
        },
    }


def _alone(verdict: Verdict, tuning: Tuning) -> Any:
    """The first setting was accepted with none beside it but those that it brought: that is its trial alone."""
    settings, own = tuning.plan.settings, {verdict.knob, *verdict.beside}
    if verdict.knob in settings and settings.keys() <= own:
        return codec.to_plain(verdict.gain)
    holds = settings.get(verdict.knob) == verdict.setting
    return codec.to_plain(tuning.alone.get(verdict.knob)) if holds else None


def _rejected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [each for each in _last(verdicts) if each.ruling is not Ruling.KEEP]


def _last(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """One for each setting: what was tried again, beside others, counts by its last verdict."""
    return list({(each.knob, str(each.setting)): each for each in verdicts}.values())


def _stages(trials: Sequence[Trial], settings: Mapping[str, Any]) -> dict[str, float] | None:
    """Exposed ms a step by stage, medians over the trials of these settings; None where no trial tells."""
    seen = [each.stages for each in _finished(trials, settings) if each.stages]
    if not seen:
        return None
    return {stage: median(each.get(stage, 0.0) for each in seen) for stage in seen[0]}


def _trial(trial: Trial, counts: str) -> dict[str, Any]:
    figures = trial.figures
    return {
        "number": trial.number,
        "settings": codec.to_plain(trial.plan.settings),
        "status": trial.status.value,
        "seconds": trial.seconds,
        "throughput": _rate(figures, counts),
        "step_ms": figures.step_ms if figures else None,
        "reason": trial.reason,
    }
