"""Is the same model trained? By the numerics class of what was changed; never `same` by default.

BITWISE settings must leave every batch, the parameters and the random numbers as they were, bit by bit. ROUNDING ones
must leave the losses and the path of the parameters as close to the baseline's, seed by seed, as the baseline's own
reseeded runs are to each other. STATISTICAL ones meet other batches, so that both models are asked the same reference
batches at equal samples seen; what a few steps cannot show is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, pstdev

from hotlap.facts.verdict import Guarded, Sameness, Witness
from hotlap.stats.compare import equivalence

LEAST_SEEDS = 3
OFF_COURSE = 0.5  # of the way that the baseline's parameters went: rounding leads nowhere near so far apart
_USUAL_SIZES = 2  # of batches: the last one of an epoch is smaller
STANDSTILL = 0.5  # of the baseline's way: a model that moves less drops updates
PACE = 1.5  # times as far, or as little, in a step as the baseline: a rate that is off by two
LEAST_ANSWERS = 4  # of a model to reference batches
ROUNDED = (
    1e-4  # of the first losses: what single precision loses in a sum of a million numbers, ten times over
)
REPEATED = 0.1  # of the samples: more that come twice in an epoch than without the plan are another training

_WHAT = ("the batches", "the losses", "the parameters", "the random numbers")


def bitwise(base: Sequence[Witness], plan: Sequence[Witness], numerics: str = "bitwise") -> Guarded:
    """One run of each is enough where two runs of the baseline agree with each other."""
    steps = min(base[0].steps, plan[0].steps)
    if len(base) > 1 and (own := first_difference(base[0], base[1])):
        reason = f"two runs of the script itself differ in {own}, so bits say nothing about the plan"
        return Guarded(Sameness.NOT_DECIDED, numerics, reason, steps, 1)
    found = first_difference(base[0], plan[0])
    epochs = min(base[0].epochs, plan[0].epochs)
    across = f" in {epochs} epochs" if epochs > 1 else ""
    if found:
        return Guarded(Sameness.DIFFERENT, numerics, f"{found} are not the same", steps, 1)
    return Guarded(
        Sameness.SAME,
        numerics,
        f"batches, losses, parameters and random numbers are bit-equal after {steps} steps{across}",
        steps,
        1,
    )


def first_difference(one: Witness, other: Witness) -> str:
    """What differs first, with the step where there is one; empty for bit-equal runs."""
    if other.breaches:
        return f"the data ({'; '.join(other.breaches)})"
    for name, mine, theirs in (
        (_WHAT[0], one.batches, other.batches),
        (_WHAT[1], one.losses, other.losses),
    ):
        count = min(len(mine), len(theirs))
        for step in range(count):
            if mine[step] != theirs[step] and not _both_nan(mine[step], theirs[step]):
                return f"{name} (from number {step + 1})"
    if one.parameters != other.parameters:
        return _WHAT[2]
    return _WHAT[3] if one.generators != other.generators else ""


def so_far(base: Witness, plan: Witness, numerics: str) -> Guarded:
    """One seed: what is plainly broken shows in it. Not decided where the loss lies off by more than the baseline's own
    steps scatter: then more seeds are worth their time at once."""
    pairs, steps = _paired([base], [plan]), min(base.steps, plan.steps)
    broken = _broken(pairs, numerics)
    if broken:
        return Guarded(Sameness.DIFFERENT, numerics, broken, steps, 1)
    measured = _measure(pairs, numerics)
    (difference,), later = measured.differences, measured.scattered
    known = all(map(math.isfinite, (difference, *later))) and not _untrained(pairs)
    if not known or abs(difference) > pstdev(later):
        reason = f"with one seed the mean loss{measured.where} differs by {difference:+.3g}{measured.note}"
        return Guarded(Sameness.NOT_DECIDED, numerics, reason, steps, 1)
    return Guarded(Sameness.SO_FAR, numerics, "one seed shows no fault", steps, 1)


def rewritten(base: Sequence[Witness], plan: Sequence[Witness], numerics: str) -> Guarded:
    """Of changes of the source alone, which round differently and do nothing else: the first step of each pair sees the
    same batch with the same weights, so that its loss and the next one are the same but for rounding, and as many
    random numbers are drawn. What is wrong by little is lost in the scatter between seeds; here it is not."""
    found = unlike_at_first(base, plan)
    if found:
        steps = min((min(one.steps, other.steps) for one, other in _paired(base, plan)), default=0)
        return Guarded(Sameness.DIFFERENT, numerics, found, steps, len(base))
    return close(base, plan, numerics)


def unlike_at_first(base: Sequence[Witness], plan: Sequence[Witness]) -> str:
    """How the first steps show more than rounding; empty where they do not. Up to the first loss after an update: what
    changes gradients or weights shows in no earlier one, and later ones have drifted apart."""
    for one, other in _paired(base, plan):
        backwards = round(len(one.losses) / one.steps) if one.steps else 0
        for number, (before, after) in enumerate(
            zip(one.losses[: backwards + 1], other.losses[: backwards + 1], strict=False), start=1
        ):
            finite = math.isfinite(before) and math.isfinite(after)
            if finite and abs(after - before) > ROUNDED * abs(before):
                more = f"is {after:.6g} in place of {before:.6g}, which is more than rounding"
                return (
                    f"the first loss {more}"
                    if number == 1
                    else f"the loss of backward number {number} {more}"
                )
        if one.steps == other.steps and one.generators != other.generators:
            return f"{_WHAT[3]} are not the same"
    return ""


def close(base: Sequence[Witness], plan: Sequence[Witness], numerics: str) -> Guarded:
    """Pairs of runs by seed, against the spread of the baseline's own seeds."""
    pairs = _paired(base, plan)
    steps = min((min(one.steps, other.steps) for one, other in pairs), default=0)
    if len(pairs) < LEAST_SEEDS or steps < 2:
        reason = f"{len(pairs)} seeds and {steps} steps are too few; {LEAST_SEEDS} seeds are needed"
        return Guarded(Sameness.NOT_DECIDED, numerics, reason, steps, len(pairs))
    broken = _broken(pairs, numerics)
    if broken:
        return Guarded(Sameness.DIFFERENT, numerics, broken, steps, len(pairs))
    too_large = _untrained(pairs)
    if too_large:
        return Guarded(Sameness.NOT_DECIDED, numerics, too_large, steps, len(pairs))
    measured = _measure(pairs, numerics)
    margin = chance(measured.levels)
    found = equivalence(measured.differences, margin)
    shown = (
        f"mean loss{measured.where} differs by {found.difference:+.3g} ({found.low:+.3g} to {found.high:+.3g}), "
        f"chance alone by {margin:.3g}{measured.note}"
    )
    if found.different:
        return Guarded(Sameness.DIFFERENT, numerics, shown, steps, len(pairs))
    if not found.same:
        return Guarded(Sameness.NOT_DECIDED, numerics, shown, steps, len(pairs))
    limit = "" if numerics == "rounding" else f"; what shows only after more than {steps} steps is not known"
    return Guarded(Sameness.SAME, numerics, shown + limit, steps, len(pairs))


@dataclass(frozen=True)
class _Measured:
    """What plan and baseline differ by: a difference and the baseline's own level for each pair of runs."""

    differences: Sequence[float]
    levels: Sequence[float]
    scattered: Sequence[float]  # losses of one run of the baseline
    where: str = ""
    note: str = ""


def _measure(pairs: Sequence[tuple[Witness, Witness]], numerics: str) -> _Measured:
    """By the answers to the same reference batches where batches differ; else by the losses of the batches."""
    first = pairs[0][0]
    count = min(len(each.answers) for pair in pairs for each in pair)
    if numerics == "statistical" and count >= LEAST_ANSWERS:
        levels = [(mean(one.answers[:count]), mean(other.answers[:count])) for one, other in pairs]
        return _Measured(
            [theirs - mine for mine, theirs in levels],
            [mine for mine, _ in levels],
            first.answers[:count],
            f" on {count} reference batches",
        )
    differences, own = _differences(pairs)
    why = next((each.unasked for pair in pairs for each in pair if each.unasked), "")
    note = f"; on the batches of its training, as it could not be asked about reference batches: {why}"
    later = first.losses[len(first.losses) // 2 :]
    return _Measured(differences, own, later, note=note if numerics == "statistical" and why else "")


def untrained(base: Sequence[Witness], plan: Sequence[Witness]) -> bool:
    """Whether only the loss before the first step could be compared: more seeds would not tell more."""
    return bool(_untrained(_paired(base, plan)))


def _paired(base: Sequence[Witness], plan: Sequence[Witness]) -> list[tuple[Witness, Witness]]:
    return [(one, other) for one in _evened(base) for other in _evened(plan) if one.seed == other.seed]


def _evened(runs: Sequence[Witness]) -> Sequence[Witness]:
    """Where batches hold different numbers of samples, as those of as many tokens do, each counts for as many as they
    hold on average: that the first one held many short samples does not mean that a model has seen much."""
    sizes = [after - before for run in runs for before, after in pairwise(run.samples)]
    if len(set(sizes)) <= _USUAL_SIZES:
        return runs
    size = mean(sizes)
    return [
        replace(run, samples=tuple(round(size * (at + 1)) for at in range(len(run.samples)))) for run in runs
    ]


def _broken(pairs: Sequence[tuple[Witness, Witness]], numerics: str) -> str:
    """What no chance explains."""
    course = _off_course(pairs) if numerics == "rounding" else _repeats(pairs)
    pace = _off_pace(pairs) if numerics == "statistical" else ""
    return _not_finite(pairs) or course or _standstill(pairs) or pace


def _untrained(pairs: Sequence[tuple[Witness, Witness]]) -> str:
    """Where the plan's first batch holds all that is compared, its loss is of a model that nothing has trained."""
    for one, other in pairs:
        until = _until(one, other)
        if until > 0 and sum(seen <= until for seen in other.samples) < 2:
            return f"a batch of the plan holds as many samples as {one.steps} steps of the script"
    return ""


def _until(one: Witness, other: Witness) -> int:
    """Samples that both have seen; 0 where they were not counted."""
    return min(one.samples[-1], other.samples[-1]) if one.samples and other.samples else 0


def _differences(pairs: Sequence[tuple[Witness, Witness]]) -> tuple[list[float], list[float]]:
    """Of the mean loss over the later half, at equal samples seen; and the baselines' own levels."""
    differences, levels = [], []
    for one, other in pairs:
        until = _until(one, other)
        mine, theirs = level(one, until), level(other, until)
        differences.append(theirs - mine)
        levels.append(mine)
    return differences, levels


def level(witness: Witness, until: int) -> float:
    """Mean loss over the second half of the samples up to `until`; of the steps where samples were not counted."""
    rows = list(zip(witness.samples, witness.losses, strict=True))
    if until > 0:
        later = [loss for seen, loss in rows if until / 2 < seen <= until]
    else:
        later = [loss for _, loss in rows[len(rows) // 2 :]]
    return sum(later) / len(later) if later else witness.losses[-1]


def chance(levels: Sequence[float]) -> float:
    """How far two reseeded runs of the script are apart: the deviation of a difference, which is of two levels."""
    middle = sum(levels) / len(levels)
    return math.sqrt(2 * sum((each - middle) ** 2 for each in levels) / (len(levels) - 1))


def _not_finite(pairs: Sequence[tuple[Witness, Witness]]) -> str:
    for one, other in pairs:
        for step, loss in enumerate(other.losses):
            if not math.isfinite(loss) and all(math.isfinite(each) for each in one.losses[: step + 1]):
                return f"the loss becomes {loss} at backward number {step + 1}; the script's own stays finite"
        if all(map(math.isfinite, one.answers)) and not all(map(math.isfinite, other.answers)):
            return "the loss on reference batches is not finite; the script's own is"
    return ""


def _off_course(pairs: Sequence[tuple[Witness, Witness]]) -> str:
    """Rounding errors grow, but a path of the parameters that leads elsewhere from the start is another training."""
    apart = [_apart(one, other) for one, other in pairs]
    middle = sorted(apart)[len(apart) // 2]
    if middle <= OFF_COURSE:
        return ""
    return f"after {pairs[0][1].steps} steps the parameters are {middle:.0%} of their way apart"


def _apart(one: Witness, other: Witness) -> float:
    count = min(one.steps, other.steps)
    mine, theirs = (_way(each, count) for each in (one, other))
    went = _norm(mine)
    return _norm([a - b for a, b in zip(mine, theirs, strict=True)]) / went if went else 0.0


def _standstill(pairs: Sequence[tuple[Witness, Witness]]) -> str:
    """Updates that are lost, as fp16 does with small ones: at equal steps the parameters move much less."""
    shares = []
    for one, other in pairs:
        if _as_many(one, other):
            count = min(one.steps, other.steps)
            went = _norm(_way(one, count))
            shares.append(_norm(_way(other, count)) / went if went else 1.0)
    if not shares or sorted(shares)[len(shares) // 2] >= STANDSTILL:
        return ""
    return f"the parameters move only {sorted(shares)[len(shares) // 2]:.0%} as far as without the plan"


def _off_pace(pairs: Sequence[tuple[Witness, Witness]]) -> str:
    """A model that has learnt what a few steps teach answers as well with twice the rate: its steps show it."""
    ratios = []
    for one, other in pairs:
        if _as_many(one, other):
            count = min(one.steps, other.steps)
            mine, theirs = (_walked(each, count) for each in (one, other))
            ratios.append(theirs / mine if mine else 1.0)
    middle = sorted(ratios)[len(ratios) // 2] if ratios else 1.0
    if 1 / PACE <= middle <= PACE:
        return ""
    return f"a step changes the parameters {middle:.2g} times as much as without the plan"


def _walked(witness: Witness, steps: int) -> float:
    """The length of all steps, however they turn."""
    places = (witness.start, *witness.sketches[:steps])
    return sum(_norm([b - a for a, b in zip(*pair, strict=True)]) for pair in pairwise(places))


def _repeats(pairs: Sequence[tuple[Witness, Witness]]) -> str:
    """Few steps on the same samples teach a model almost as much as on others: its loss hardly shows it."""
    own, plan = (mean(pair[at].repeated for pair in pairs) for at in (0, 1))
    if plan - own <= REPEATED:
        return ""
    return f"{plan:.0%} of the samples come again within an epoch; without the plan {own:.0%} do"


def _as_many(one: Witness, other: Witness) -> bool:
    """Samples a step, about: what was fetched ahead is counted too."""
    if not one.samples or not other.samples:
        return False
    mine, theirs = one.samples[-1] / one.steps, other.samples[-1] / other.steps
    return 0.9 * mine <= theirs <= 1.1 * mine


def _way(witness: Witness, steps: int) -> list[float]:
    return [now - start for now, start in zip(witness.sketches[steps - 1], witness.start, strict=True)]


def _norm(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


def _both_nan(one: object, other: object) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
