"""The guard, from made-up witnesses: what is the same, what is not, and what a few steps cannot tell."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import accumulate

import pytest

from hotlap.facts.verdict import Sameness, Witness
from hotlap.judge.guard import bitwise, chance, close, first_difference, level, rewritten, so_far, untrained

STEPS = 20


def witness(seed=0, shift=0.0, pace=1.0, way=1.0, steps=STEPS, batch=8, noise=0.02):
    """A falling loss. `shift` raises it, `pace` makes it fall faster, `way` is how far the parameters go."""
    draw = random.Random(seed)
    level = 2.0 + 0.3 * draw.gauss(0, 1)
    losses = [
        level * math.exp(-0.05 * pace * step) + shift + noise * draw.gauss(0, 1) for step in range(steps)
    ]
    heading = [draw.gauss(0, 1) for _ in range(4)]
    sketches = [tuple(way * turn * (step + 1) for turn in heading) for step in range(steps)]
    return Witness(
        seed=seed,
        losses=tuple(losses),
        samples=tuple(batch * (step + 1) for step in range(steps)),
        batches=tuple(f"{seed}-{step}" for step in range(steps)),
        start=(0.0,) * 4,
        sketches=tuple(sketches),
        parameters=f"{seed}{way}",
        generators=f"{seed}",
        steps=steps,
    )


def seeds(**changes):
    return [witness(seed, **changes) for seed in range(3)]


def test_bit_equal_runs_are_the_same():
    found = bitwise([witness(), witness()], [witness()])
    assert found.sameness is Sameness.SAME
    assert str(STEPS) in found.reason


def test_a_loader_that_repeats_samples_is_caught():
    one = witness()
    repeated = replace(one, batches=(*one.batches[:5], one.batches[4], *one.batches[6:]))
    found = bitwise([one, one], [repeated])
    assert found.sameness is Sameness.DIFFERENT
    assert "batches (from number 6)" in found.reason


def test_an_optimizer_that_drops_updates_is_caught_bit_by_bit():
    found = bitwise([witness(), witness()], [replace(witness(), parameters="other")])
    assert found.sameness is Sameness.DIFFERENT
    assert "parameters" in found.reason


def test_random_numbers_that_move_are_caught():
    assert "random numbers" in first_difference(witness(), replace(witness(), generators="moved"))


def test_a_script_that_differs_from_itself_cannot_be_judged_by_bits():
    found = bitwise([witness(), replace(witness(), parameters="other")], [witness()])
    assert found.sameness is Sameness.NOT_DECIDED
    assert "script itself" in found.reason


def test_two_losses_that_are_not_a_number_are_equal():
    nan = replace(witness(), losses=(math.nan,) * STEPS)
    assert first_difference(nan, replace(nan, losses=(float("nan"),) * STEPS)) == ""


def test_chance_is_what_lies_between_two_runs_of_the_script():
    assert chance([1.0, 3.0]) == pytest.approx(2.0)
    assert chance([0.0, 1.0, 0.0, 1.0] * 50) == pytest.approx(math.sqrt(0.5), rel=0.01)


def test_rounding_that_stays_within_chance_is_the_same():
    found = close(seeds(), seeds(shift=0.001), "rounding")
    assert found.sameness is Sameness.SAME
    assert found.seeds == 3


def test_a_loss_that_is_higher_than_chance_makes_it_is_different():
    found = close(seeds(), seeds(shift=3.0), "rounding")
    assert found.sameness is Sameness.DIFFERENT


def test_updates_that_underflow_are_caught_though_the_loss_hardly_shows_it():
    found = close(seeds(), seeds(way=0.1), "rounding")
    assert found.sameness is Sameness.DIFFERENT


def test_a_path_that_leads_elsewhere_is_no_rounding():
    found = close(seeds(), seeds(way=-1.0), "rounding")
    assert found.sameness is Sameness.DIFFERENT
    assert "apart" in found.reason


def test_a_loss_that_stops_being_finite_is_different_and_names_where():
    broken = [replace(each, losses=(*each.losses[:7], math.nan, *each.losses[8:])) for each in seeds()]
    found = close(seeds(), broken, "rounding")
    assert found.sameness is Sameness.DIFFERENT
    assert "number 8" in found.reason


def test_one_seed_may_show_no_fault_but_is_no_proof():
    found = so_far(witness(), witness(shift=0.01), "statistical")
    assert (found.sameness, found.seeds) == (Sameness.SO_FAR, 1)


@pytest.mark.parametrize(("shift", "said"), [(1.0, Sameness.NOT_DECIDED), (math.nan, Sameness.DIFFERENT)])
def test_one_seed_shows_what_is_plainly_broken_and_what_is_to_be_asked(shift, said):
    assert so_far(witness(), witness(shift=shift), "statistical").sameness is said


def test_one_seed_shows_updates_that_are_lost():
    assert so_far(witness(), witness(way=0.1), "rounding").sameness is Sameness.DIFFERENT


def test_fewer_steps_of_a_larger_batch_are_no_standstill():
    """At equal samples it has made a quarter of the steps, and gone a quarter of the way."""
    larger = [witness(seed, batch=32, steps=STEPS // 4) for seed in range(3)]
    assert "move only" not in close(seeds(), larger, "statistical").reason


def test_one_seed_of_a_script_whose_own_losses_are_not_finite_decides_nothing():
    broken = replace(witness(), losses=(*witness().losses[:-1], math.nan))
    assert so_far(broken, witness(), "rounding").sameness is Sameness.NOT_DECIDED


@pytest.mark.parametrize(("batch", "decided"), [(80, True), (96, False), (1000, False)])
def test_a_batch_that_holds_all_that_is_compared_decides_nothing(batch, decided):
    """The script has seen 160 samples: of larger batches only the loss before the first step could be compared."""
    found = close(seeds(), [witness(seed, batch=batch) for seed in range(3)], "statistical")
    assert ("as many samples as 20 steps" not in found.reason) is decided
    assert decided or found.sameness is Sameness.NOT_DECIDED
    if not decided:
        assert so_far(witness(), witness(batch=batch), "statistical").sameness is Sameness.NOT_DECIDED


def test_one_seed_of_an_untrained_loss_is_asked_further_though_it_lies_close():
    base = replace(witness(), losses=(1.0, 2.0) * (STEPS // 2))
    plan = replace(witness(batch=1000), losses=(1.5,) * STEPS)
    assert so_far(base, plan, "statistical").sameness is Sameness.NOT_DECIDED
    assert so_far(base, replace(plan, samples=base.samples), "statistical").sameness is Sameness.SO_FAR


MANY_SHORT = (100, 4, 6, 90, 4, 8, 80, 6, 5, 7, 60, 5, 90, 4, 6, 70, 5, 6, 50, 4)  # samples of each batch


def of_tokens(seed, sizes=MANY_SHORT):
    """A run whose batches hold as many tokens: many short samples, or a few long ones; 30 on average."""
    turned = (*sizes[seed:], *sizes[:seed])
    return replace(witness(seed), samples=tuple(accumulate(turned)))


def test_batches_of_as_many_tokens_count_for_as_many_samples_as_they_hold_on_average():
    """The first batch of one run holds 100 samples, of another 4: neither model has seen more than the other."""
    base = seeds(batch=8)
    found = close(base, [of_tokens(seed) for seed in range(3)], "statistical")
    assert "as many samples as" not in found.reason
    evenly = [witness(seed, batch=30) for seed in range(3)]
    assert [found.reason, found.sameness] == [
        (same := close(base, evenly, "statistical")).reason,
        same.sameness,
    ]


def test_what_is_too_large_on_average_is_not_compared():
    larger = [of_tokens(seed, tuple(8 * each for each in MANY_SHORT)) for seed in range(3)]
    assert "as many samples as 20 steps" in close(seeds(batch=8), larger, "statistical").reason
    assert untrained(seeds(batch=8), larger)
    assert not untrained(seeds(batch=8), [of_tokens(seed) for seed in range(3)])


def test_a_last_batch_that_is_smaller_leaves_the_count_as_it_is():
    """Of 20 steps the tenth ends an epoch: what was seen until then was seen."""
    sizes = (8,) * 9 + (3,) + (8,) * 10
    short = [replace(each, samples=tuple(accumulate(sizes))) for each in seeds()]
    assert level(short[0], 40) == level(witness(), 40)
    assert close(short, short, "statistical").sameness is Sameness.SAME


def test_updates_that_are_lost_show_in_a_run_that_ended_sooner():
    found = close(seeds(), seeds(way=0.1, steps=STEPS - 1), "statistical")
    assert "move only" in found.reason


def test_too_few_seeds_decide_nothing():
    found = close(seeds()[:2], seeds()[:2], "rounding")
    assert found.sameness is Sameness.NOT_DECIDED


def test_a_wide_scatter_decides_nothing():
    base = seeds()
    other = [
        replace(each, losses=tuple(loss + (seed - 1) * 2.0 for loss in each.losses))
        for seed, each in enumerate(base)
    ]
    assert close(base, other, "statistical").sameness is Sameness.NOT_DECIDED


def test_another_batch_size_is_compared_at_equal_samples():
    """Twice the batch makes half the steps: step by step it looks slower to learn, by samples it is not."""
    half = [
        replace(
            each,
            losses=each.losses[1::2],
            samples=each.samples[1::2],
            sketches=each.sketches[1::2],
            steps=STEPS // 2,
        )
        for each in seeds()
    ]
    found = close(seeds(), half, "statistical")
    assert found.sameness is Sameness.SAME
    assert "not known" in found.reason


def test_the_level_is_of_the_later_half_of_the_samples():
    one = witness(noise=0.0)
    assert math.isclose(level(one, 8 * STEPS), sum(one.losses[STEPS // 2 :]) / (STEPS // 2))
    assert level(one, 8 * 4) > level(one, 8 * STEPS)


def answering(runs, *answers):
    """The same runs, each with its answers to reference batches."""
    return [replace(each, answers=tuple(one)) for each, one in zip(runs, answers, strict=True)]


LEVELS = [[level + 0.01 * number for number in range(6)] for level in (1.0, 1.1, 0.9)]


def test_where_batches_differ_the_answers_to_the_same_questions_decide():
    """The plan's batches are easier by far; its model is the same."""
    base, plan = answering(seeds(), *LEVELS), answering(seeds(shift=-0.9), *LEVELS)
    found = close(base, plan, "statistical")
    assert found.sameness is Sameness.SAME
    assert "on 6 reference batches" in found.reason
    assert so_far(base[0], plan[0], "statistical").sameness is Sameness.SO_FAR
    assert close(base, plan, "rounding").sameness is not Sameness.SAME
    without = [replace(each, answers=()) for each in plan]
    assert close(base, without, "statistical").sameness is not Sameness.SAME


def test_a_model_that_answers_worse_is_another_one_though_its_own_batches_look_alike():
    base = answering(seeds(), *LEVELS)
    worse = answering(seeds(), *([loss + 0.5 for loss in row] for row in LEVELS))
    assert close(base, worse, "statistical").sameness is Sameness.DIFFERENT
    assert so_far(base[0], worse[0], "statistical").sameness is Sameness.NOT_DECIDED


def test_an_answer_that_is_not_finite_is_different():
    broken = answering(seeds(), *([*row[:-1], math.nan] for row in LEVELS))
    found = close(answering(seeds(), *LEVELS), broken, "statistical")
    assert found.sameness is Sameness.DIFFERENT
    assert "reference" in found.reason


def test_where_nothing_could_be_asked_the_batches_decide_and_that_is_said():
    silent = [replace(each, unasked="planted") for each in seeds()]
    found = close(answering(seeds(), *LEVELS), silent, "statistical")
    assert found.sameness is Sameness.SAME
    assert found.reason.count("could not be asked about reference batches: planted") == 1
    assert "planted" not in close(silent, silent, "rounding").reason


@pytest.mark.parametrize(("way", "fault"), [(2.0, True), (0.6, True), (1.2, False), (0.8, False)])
def test_steps_that_are_twice_as_long_are_another_rate_whatever_the_answers(way, fault):
    found = close(answering(seeds(), *LEVELS), answering(seeds(way=way), *LEVELS), "statistical")
    assert ("a step changes the parameters" in found.reason) is fault
    assert found.sameness is (Sameness.DIFFERENT if fault else Sameness.SAME)


def test_samples_that_come_twice_are_another_training_whatever_the_answers():
    base = answering(seeds(), *LEVELS)
    twice = [replace(each, repeated=0.5) for each in base]
    found = close(base, twice, "statistical")
    assert found.sameness is Sameness.DIFFERENT
    assert "50% of the samples" in found.reason
    assert close(twice, twice, "statistical").sameness is Sameness.SAME  # it draws with replacement


def test_a_rewrite_that_rounds_leaves_the_first_loss_and_the_draws_as_they_were():
    base = seeds()
    nearly = [replace(each, losses=(each.losses[0] * (1 + 2e-5), *each.losses[1:])) for each in base]
    assert rewritten(base, nearly, "rounding").sameness is Sameness.SAME
    off = [replace(each, losses=(each.losses[0] * 1.002, *each.losses[1:])) for each in base]
    assert close(base, off, "rounding").sameness is Sameness.SAME, "lost in the scatter between seeds"
    found = rewritten(base, off, "rounding")
    assert found.sameness is Sameness.DIFFERENT
    assert "more than rounding" in found.reason
    updated = [
        replace(each, losses=(each.losses[0], each.losses[1] * 1.002, *each.losses[2:])) for each in base
    ]
    found = rewritten(base, updated, "rounding")
    assert found.sameness is Sameness.DIFFERENT
    assert "backward number 2" in found.reason
    drifted = [
        replace(each, losses=(*each.losses[:2], each.losses[2] * 1.002, *each.losses[3:])) for each in base
    ]
    assert rewritten(base, drifted, "rounding").sameness is Sameness.SAME
    drawn = [replace(each, generators="others") for each in base]
    assert rewritten(base, drawn, "rounding").reason == "the random numbers are not the same"
