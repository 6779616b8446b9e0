"""Trials of real jobs: what they bring, and that one which dies or hangs is a result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, alike
from hotlap.facts.verdict import Sameness
from hotlap.judge.guard import LEAST_SEEDS, bitwise, close, first_difference
from hotlap.launch.environment import PUT
from hotlap.launch.warm import Warmth
from hotlap.measure.runner import steady_since

GUARD_STEPS = 12


def witness(bench, name, seed=0):
    found, interrupted = bench.witness(name, Plan(), GUARD_STEPS, seed)
    assert not interrupted
    return found


def test_a_trial_brings_figures_and_what_became_of_its_plan(bench):
    plan = Plan({"num-workers": 0, "log-every": 50})
    trial, seen = bench("small.py").trial(1, plan)
    assert trial.status is Status.DONE, trial.reason
    assert trial.figures.counts == "samples"
    assert trial.figures.samples_per_step == 16.0
    assert trial.figures.steps >= 30
    assert seen[0].steady_steps
    assert "log-every" in trial.refused
    assert sum(trial.stages.values()) > 0


def test_what_is_compared_is_steady_from_the_same_moment(compute_timeline):
    """Who compiles may be steady later; who has no step after that moment is left as it was."""
    plain = compute_timeline()
    whole = replace(
        plain, steps=replace(plain.steps, start=[step * 100 for step in range(10)]), steady_from=5
    )
    compiles = replace(whole, warmup=replace(whole.warmup, compiles=1))
    found = [steady_since(each, moment).steady_from for each in (whole, compiles) for moment in (201, 700)]
    assert found == [3, 7, 5, 7]
    assert steady_since(whole, 0) is steady_since(whole, 901) is whole


def test_a_job_that_dies_is_a_result_with_its_last_words(bench):
    trial, _ = bench("small.py", "dies", steps=1000).trial(1, Plan())
    assert trial.status is Status.DEAD
    assert trial.figures is None
    assert "planted" in trial.reason


def test_a_job_that_hangs_is_ended_and_is_a_result(bench):
    trial, _ = bench("small.py", "hangs", steps=1000, limit_s=4.0).trial(1, Plan())
    assert trial.status is Status.HUNG
    assert trial.reason.startswith("not done after ")


def test_the_guard_sees_what_real_runs_compute(bench):
    """Of an unseeded script: equal runs are the same, dropped updates and repeated samples are not."""
    base = [witness(bench("small.py"), f"w{number}") for number in range(2)]
    assert bitwise(base, [base[1]]).sameness is Sameness.SAME
    assert len(base[0].sketches) == GUARD_STEPS
    assert base[0].samples[-1] == 16 * GUARD_STEPS
    for wrong, what in (("forgetful", "the losses"), ("repeats", "the batches")):
        found = bitwise(base, [witness(bench("small.py", wrong), wrong)])
        assert found.sameness is Sameness.DIFFERENT
        assert found.reason.startswith(what)


def test_a_run_of_the_guard_ends_when_it_has_seen_enough_samples_but_not_too_soon(bench):
    """16 of them in a step; a larger batch has as many in 6 steps, and a rate that is too high for it needs some."""
    mine = bench("small.py")
    ran = [
        mine.witness("w1", Plan(), 24, 0, samples=300),
        mine.witness("w2", Plan({"batch-size": 64}), 24, 0, 384),
    ]
    assert [found.steps for found, _ in ran] == [19, 12]
    assert ran[1][0].samples[-1] == 12 * 64


def test_a_run_puts_reference_batches_aside_and_another_is_asked_them(bench, tmp_path):
    """A script that builds its loader anew for each epoch, and a plan that makes other batches."""
    mine, path = bench("small.py"), tmp_path / "search" / "reference" / "0"
    base, _ = mine.witness("w1", Plan(), GUARD_STEPS, 0, 0, 8, f"{PUT}{path}")
    plan, _ = mine.witness("w2", Plan({"batch-size": 32}), GUARD_STEPS, 0, base.samples[-1], 8, str(path))
    assert (base.unasked, plan.unasked) == ("", "")
    assert len(base.answers) == len(plan.answers) == 12
    assert sum(plan.answers) > sum(base.answers)  # it has made half the steps


@pytest.mark.parametrize("kind", ["seeded", "generator"])
def test_another_seed_trains_another_model_also_where_the_script_seeds(bench, kind):
    """Or has generators of its own, for its rows and for their order."""
    runs = [witness(bench("small.py", kind), f"s{number}", seed) for number, seed in enumerate((0, 0, 1, 1))]
    assert runs[0].batches == runs[1].batches
    assert runs[2].batches == runs[3].batches
    assert runs[0].losses != runs[2].losses
    assert not set(runs[0].batches) & set(runs[2].batches)


def test_gradients_that_underflow_in_16_bits_are_no_rounding(bench):
    """Every loss of the run stays finite and near the script's own: what gives it away is that nothing moves."""
    base = [witness(bench("small.py"), f"b{seed}", seed) for seed in range(LEAST_SEEDS)]
    lost = [witness(bench("small.py", "underflows"), f"u{seed}", seed) for seed in range(LEAST_SEEDS)]
    assert close(base, base, "rounding").sameness is Sameness.SAME
    found = close(base, lost, "rounding")
    assert found.sameness is Sameness.DIFFERENT
    assert "parameters" in found.reason


def test_trials_of_one_search_share_what_the_compiler_has_built(bench, tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    bench("tells.py").trial(1, Plan())
    told = (tmp_path / "search" / "trials" / "1" / "stdout.log").read_text()
    assert told.strip() == str(tmp_path / "search" / "compiled")


@pytest.mark.alone
def test_a_job_of_many_lengths_is_counted_by_tokens_and_by_samples_beside_a_cut(bench):
    """Lengths are found in a tuple without names. Beside a knob that shortens samples, tokens would be no measure."""
    job = bench("clips.py", steps=60, shortening=frozenset({"max-length"}))
    plain = job.trial(1, Plan())[0].figures
    assert plain.counts == "tokens"
    assert plain.rates["tokens"].scatter < 0.7 * plain.rates["samples"].scatter
    assert plain.throughput == plain.rates["tokens"].per_s > 10 * plain.rates["samples"].per_s
    cut = replace(job, counts="tokens").trial(2, Plan({"max-length": 40}))[0]
    assert cut.stood == ("max-length",), cut.refused
    assert cut.figures.counts == "samples"
    (before,), (after,) = alike([plain], [cut.figures])
    assert after.throughput > 1.3 * before.throughput


@pytest.fixture
def warm(bench, tmp_path):
    """`warm(script, *arguments)`: a bench whose runs are forked once it is known what they import."""
    warmths = []

    def make(*words, **more):
        plain = bench(*words, **more)
        plain.folder.mkdir(parents=True, exist_ok=True)
        warmths.append(Warmth(plain.job, plain.folder))
        return replace(plain, warmth=warmths[-1])

    yield make
    for each in warmths:
        each.close()


def forked(bench, number):
    begun = bench.begin(number, Plan())
    assert begun.started.warm
    return begun.concluded(begun.started.wait(bench.signals))


def test_a_forked_run_computes_what_a_started_one_does(warm):
    """Bit by bit; and it trains as well."""
    mine = warm("small.py")
    assert mine.trial(1, Plan())[0].status is Status.DONE
    trial, seen = forked(mine, 2)
    assert trial.status is Status.DONE, trial.reason
    assert seen[0].steady_steps >= 30
    by_fork, by_start = witness(mine, "w1"), witness(replace(mine, warmth=None), "w2")
    assert first_difference(by_start, by_fork) == ""


def test_no_run_has_the_imports_of_all_in_its_own_time(warm):
    """What a search can still afford is reckoned from the trials before: the first forked one is like the others."""
    mine = warm("small.py")
    started, first = mine.trial(1, Plan())[0], forked(mine, 2)[0]
    assert first.figures.startup_s < started.figures.startup_s / 2


def test_a_job_that_cannot_be_forked_is_started_as_ever(warm):
    mine = warm("small.py", "unforked")
    trials = [mine.trial(number, Plan())[0] for number in (1, 2, 3)]
    assert [each.status for each in trials] == [Status.DONE] * 3, trials[1].reason
    last = mine.begin(4, Plan())
    assert not last.started.warm  # it has learnt
    last.started.abandon()
    other = warm("small.py", "unforked")
    assert witness(other, "w1").steps == witness(other, "w2").steps == GUARD_STEPS


def test_what_fails_in_either_way_is_no_fault_of_forking(warm):
    mine = warm("small.py", "dies", steps=1000)
    assert [mine.trial(number, Plan())[0].status for number in (1, 2)] == [Status.DEAD] * 2
    begun = mine.begin(3, Plan())
    assert begun.started.warm
    begun.started.abandon()


def test_a_script_that_fails_at_its_end_fails_when_it_is_forked_too(warm):
    mine = warm("ends_badly.py")
    assert mine.trial(1, Plan())[0].status is Status.DEAD
    trial, _ = forked(mine, 2)
    assert trial.status is Status.DEAD
    assert "planted" in trial.reason
    assert mine.trial(3, Plan())[0].status is Status.DEAD
    assert "planted" in (mine.folder / "trials" / "3" / "stderr.warm.log").read_text()
