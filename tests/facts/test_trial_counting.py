"""Figures are held against each other in one count."""

from __future__ import annotations

import pytest

from hotlap.facts.trial import Figures, Goal, Rate, alike, count_for, counted, without_tokens, worths


def figures(counts, **rates):
    known = {name: Rate(per_s, 0.1) for name, per_s in rates.items()}
    return Figures(
        rates.get(counts, 7.0), counts, 8.0, 2.0, 8.0, 1 << 20, 0.75, 0.0, 1.0, 0.0, 60, rates=known
    )


LONG = figures("tokens", tokens=9000.0, samples=10.0, steps=5.0)
BLIND = figures("samples", samples=20.0, steps=5.0)  # tokens were not seen
OLD = figures("samples")  # of a file without rates
CUT = figures("tokens", tokens=4000.0, samples=40.0, steps=5.0)


@pytest.mark.parametrize(
    ("groups", "counts"),
    [
        (([LONG], [LONG, CUT]), "tokens"),
        (([LONG], [BLIND]), "samples"),
        (([BLIND], [OLD]), "samples"),
        (([LONG], [OLD]), "samples"),
        (([LONG], [figures("steps", steps=4.0)]), "steps"),
        (([OLD], [figures("steps", steps=4.0)]), None),
    ],
    ids=["tokens", "tokens-in-one-only", "older-file", "older-baseline", "steps", "nothing"],
)
def test_the_count_that_all_can_be_told_in(groups, counts):
    assert count_for(groups) == counts


def scattering(samples, tokens, counts="samples"):
    rates = {"samples": Rate(10.0, samples), "tokens": Rate(9000.0, tokens)}
    return Figures(rates[counts].per_s, counts, 8.0, 2.0, 8.0, None, 0.75, 0.0, 1.0, 0.0, 60, rates=rates)


NOISY, QUIET = scattering(0.103, 0.098), scattering(0.12, 0.03)


def test_one_noisy_run_does_not_decide_how_all_are_counted():
    """The first run chose samples, as a neighbour's noise was all that it saw."""
    assert count_for(([], [])) == count_for(([NOISY], [])) == "samples"
    assert count_for(([NOISY, QUIET], [QUIET, QUIET])) == "tokens"
    assert worths(Goal.SPEED, [NOISY], [QUIET]) == [[9000.0], [9000.0]]
    assert count_for(([NOISY, NOISY], [QUIET])) == "samples"
    assert count_for(([NOISY, QUIET], [QUIET, BLIND])) == "samples"
    assert count_for(([QUIET], [QUIET]), one_job=False) == "samples"


def test_samples_that_were_made_shorter_are_not_counted_by_tokens():
    cut = without_tokens(scattering(0.12, 0.03, "tokens"))
    assert (cut.throughput, cut.counts) == (10.0, "samples")
    assert count_for(([QUIET], [cut])) == "samples"
    assert without_tokens(BLIND) == BLIND


def test_tokens_in_one_variant_only_turn_both_into_samples():
    (before,), (after,) = alike([LONG], [BLIND])
    assert (before.throughput, before.counts) == (10.0, "samples")
    assert after == BLIND
    assert worths(Goal.SPEED, [LONG], [BLIND]) == [[10.0], [20.0]]


def test_tokens_of_another_script_may_be_another_thing():
    """Nine times as many in a sample: sound beside features, or sequences that were cut."""
    assert count_for(([LONG], [CUT]), one_job=True) == "tokens"
    assert count_for(([LONG], [CUT]), one_job=False) == "samples"
    near = figures("tokens", tokens=6000.0, samples=10.0)
    assert count_for(([LONG], [near]), one_job=False) == "tokens"


def test_without_a_common_count_figures_stay_as_they_are():
    one, other = OLD, figures("steps", steps=4.0)
    assert alike([one], [other]) == [[one], [other]]


def test_memory_is_worth_the_same_in_any_count():
    assert worths(Goal.MEMORY, [LONG], [BLIND]) == [[1 / (1 << 20)], [1 / (1 << 20)]]


def test_counting_again_changes_nothing_else():
    again = counted(LONG, "steps")
    assert (again.throughput, again.counts) == (5.0, "steps")
    assert counted(again, "tokens") == LONG
