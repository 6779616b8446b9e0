"""Why a search has ended, and why a setting is not kept: the words that reports translate."""

from __future__ import annotations

from hotlap.facts.trial import Status, Trial
from hotlap.facts.verdict import Gain, Guarded
from hotlap.judge.gain import LEAST
from hotlap.measure.duel import Duel

INTERRUPTED = "interrupted: the best so far is kept"
SPENT = "the budget is spent"
NOTHING_LEFT = "nothing is left that promises a gain"
NO_BETTER = "measured once more, the plan could not be told from the script as it is"
NO_TIME = "the budget was spent before it was decided"


def why(trial: Trial) -> str:
    word = {Status.DEAD: "the job died", Status.HUNG: "the job hung"}.get(
        trial.status, "no steady step was made"
    )
    return f"{word}: {trial.reason}"


def cannot_act(reason: str) -> str:
    return f"it cannot act: {reason}"


def the_guard_says(guarded: Guarded) -> str:
    return f"the guard says {guarded.sameness.value}: {guarded.reason}"


def of_the_whole(guarded: Guarded) -> str:
    return f"of the whole plan {the_guard_says(guarded)}"


def slower(gain: Gain | None) -> str:
    if gain is None:
        return "it was not measured often enough"
    if gain.interval.high < 0:
        return "it is slower"
    if gain.interval.high < LEAST:
        return f"it brings less than {LEAST * 100:.0f} %"
    return "the gain cannot be told from noise" if gain.value > 0 else "it is no faster"


def not_worth(held: Duel, speed: Gain | None) -> str:
    """For goals in which memory counts."""
    memory = f"{held.memory:+.0%} peak memory" if held.memory is not None else "memory was not measured"
    return f"{memory} and {speed.value:+.0%} speed are no better by the goal" if speed else memory
