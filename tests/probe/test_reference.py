"""Reference batches in real runs: both models get the same questions, and stay as they are while they answer."""

from __future__ import annotations

import pytest
import torch

from hotlap.facts.verdict import Witness
from hotlap.judge.guard import first_difference
from hotlap.launch.environment import PUT
from hotlap.probe import witness
from hotlap.probe.reference import LEAD, MOST, HeldOptimizers


@pytest.fixture
def run(trainings, tmp_path):
    """`run(train, puts=True)` puts the questions aside, others are asked them."""

    def once(train, *, puts=False, asked=True, **more) -> Witness:
        reference = f"{PUT if puts else ''}{tmp_path / 'questions'}" if asked else ""
        return trainings.guarded(tmp_path, train, reference, **more)

    return once


def test_the_same_training_gives_the_same_answers(run, trainings):
    """To the last bit, beside dropout: from batches that were stored as from those that the loader makes."""
    base, same = run(trainings.clips(), puts=True), run(trainings.clips())
    assert len(base.answers) == MOST
    assert base.answers == same.answers
    assert base.answers != run(trainings.clips(rate=2.0)).answers


@pytest.mark.parametrize("loop", ["", "ahead"])
@pytest.mark.parametrize("settings", [{"bucketing": "rows"}, {"batch_size": 32}, {"bucketing": "tokens"}])
def test_a_model_that_learns_nothing_answers_alike_whatever_it_was_fed(run, trainings, loop, settings):
    """So all answers are to the questions, and none to a batch of the plan's own."""
    base = run(trainings.clips(loop, rate=0.0), puts=True)
    plan = run(trainings.clips(loop, rate=0.0), samples=base.samples[-1], **settings)
    assert set(base.batches) != set(plan.batches)
    assert base.answers == plan.answers
    assert len(base.answers) >= MOST - LEAD


@pytest.mark.parametrize("framework", ["accelerate", "lightning"])
def test_frameworks_hand_the_questions_on(run, trainings, framework):
    """Accelerate fetches a batch ahead; with a rate of nothing all models are the same."""
    pytest.importorskip(framework)
    train = getattr(trainings, f"with_{framework}")
    base = run(train, puts=True)
    plan = run(train, samples=base.samples[-1], bucketing="rows")
    assert base.answers == plan.answers
    assert len(base.answers) == MOST


def test_to_be_asked_in_the_end_changes_nothing_of_what_was_before(run, trainings):
    asked, plain = run(trainings.clips(), puts=True), run(trainings.clips(), asked=False)
    assert first_difference(asked, plain) == ""
    assert asked.losses == plain.losses
    assert not plain.answers


def test_what_a_forward_pass_writes_is_put_back_before_each_question(run, trainings):
    """The same rows and the same buffer: the same answer each time, also after a validation."""
    base, plan = run(trainings.that_counts, puts=True), run(trainings.that_counts)
    assert len(set(base.answers)) == 1
    assert base.answers == plan.answers


def test_a_larger_batch_is_asked_as_it_is_when_it_has_seen_as_many_samples(run, trainings):
    """It makes twelve steps in any case; after six it has seen as many. Smaller ones make more steps."""
    base = run(trainings.clips(), puts=True)
    six, twelve = (
        run(trainings.clips(), samples=samples, batch_size=32) for samples in (base.samples[-1], 12 * 32)
    )
    assert six.parameters == twelve.parameters  # both ran as far
    assert sum(six.answers) > sum(twelve.answers)
    half = run(trainings.clips(), samples=base.samples[-1], batch_size=4)
    assert half.samples[-1] == base.samples[-1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("without_a_loader", witness.NO_LOADER), ("with_two_loaders", witness.SEVERAL)],
)
def test_where_nothing_can_be_asked_the_reason_is_told(run, trainings, name, reason):
    found = run(getattr(trainings, name), puts=True)
    assert (found.unasked, found.answers) == (reason, ())
    assert found.steps == 24


def test_a_script_that_ends_before_it_is_asked_is_still_a_witness(run, trainings):
    found = run(trainings.clips(most=24), puts=True)
    assert found.steps == 24
    assert "ended before" in found.unasked


def test_samples_that_come_again_within_an_epoch_are_counted(run, trainings):
    assert run(trainings.clips(), asked=False).repeated == 0
    assert run(trainings.clips("repeats"), asked=False).repeated == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        lambda rows: torch.optim.SGD(rows, lr=1.0, momentum=0.9, weight_decay=0.1),
        lambda rows: torch.optim.AdamW(rows, lr=1.0),
        lambda rows: torch.optim.LBFGS(rows, lr=1.0),
    ],
)
def test_an_optimizer_that_is_held_changes_nothing_and_leaves_the_gradients(build, closed):
    model = torch.nn.Linear(3, 1)
    before = [each.detach().clone() for each in model.parameters()]
    optimizer, held = build(model.parameters()), HeldOptimizers()

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean() + 1
        loss.backward()
        return loss

    if not closed:
        if isinstance(optimizer, torch.optim.LBFGS):
            return
        closure()
    optimizer.register_step_pre_hook(held.before)
    optimizer.register_step_post_hook(lambda *_: held.after())
    optimizer.step(closure) if closed else optimizer.step()
    assert all(map(torch.equal, before, model.parameters()))
    assert all(each.grad.any() for each in model.parameters())
