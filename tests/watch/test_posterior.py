"""The monitor on trainings that really collapse and that do not; what it leaves behind, and what it leaves alone."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
import torch

from hotlap.probe import boundary
from hotlap.watch import Budget, PosteriorMonitor
from hotlap.watch.collapse import State

HEALTHY, COLLAPSED = State.HEALTHY, State.COLLAPSED
KINDS = {
    "healthy": (lambda share: min(1.0, 4 * share), False),
    "provoked": (lambda _: 40.0, False),
    "slowly": (lambda share: 80.0 * share, False),
    "flat": (lambda _: 40.0, True),
}


def watching(**words):
    return PosteriorMonitor(**{"update_frequency": 10, "budget": "100%", **words})


@pytest.mark.parametrize("kind", KINDS)
def test_every_collapse_is_found_and_a_healthy_model_gives_no_alarm(train_vae, kind, capsys):
    beta, silent = KINDS[kind]
    monitor = watching()
    _, told = train_vae(monitor, beta, silent=silent)
    said = capsys.readouterr().err
    if kind == "healthy":
        assert set(told) == {HEALTHY} and said == ""
        assert monitor.latest.active >= 2 and monitor.latest.gap > 0.1
    else:
        assert told[-1] is COLLAPSED and told[0] is HEALTHY
        assert f"posterior collapsed since step {monitor.verdict.since}" in said
        assert monitor.latest.active == 0 and abs(monitor.latest.gap) < 0.05
    if kind == "flat":
        assert monitor.verdict.since <= 20
    if kind == "slowly":
        assert monitor.verdict.since > 50


def test_training_is_the_same_to_the_last_bit_with_and_without(train_vae):
    alone, _ = train_vae(None, lambda _: 1.0, steps=60)
    rng = torch.get_rng_state()
    watched, _ = train_vae(watching(), lambda _: 1.0, steps=60)
    assert torch.get_rng_state().equal(rng)
    assert all(
        mine.equal(theirs) for mine, theirs in zip(alone.parameters(), watched.parameters(), strict=True)
    )


def test_small_batches_are_collected_until_a_look_is_worth_it(train_vae):
    monitor = watching(update_frequency=1)
    train_vae(monitor, lambda _: 1.0, steps=130, batch=4)
    assert [each.rows for each in monitor.history] == [256, 256]
    assert [each.step for each in monitor.history] == [64, 128]


def test_rows_of_sequences_are_seen_one_by_one(vae):
    monitor = watching(update_frequency=1)
    for _ in range(2):
        monitor.update(torch.randn(8, 40, 6), torch.zeros(8, 40, 6))
    assert monitor.latest.rows == 256 and len(monitor.latest.kl) == 6


def test_off_does_nothing_at_all():
    monitor = watching(budget="off")
    for _ in range(200):
        monitor.update(None, None)  # not even looked at
    assert monitor.latest is None and monitor.budget.spent == 0.0
    monitor.close()


def test_a_budget_thins_looks_and_holds():
    looks = {}
    for share in ("100%", "2%"):
        now = 0.0

        def clock():
            nonlocal now
            now += 0.001  # all that is done between two looks at the clock takes a millisecond
            return now

        monitor = watching(update_frequency=1, budget=Budget(share, clock))
        mu, logvar = torch.randn(256, 4), torch.zeros(256, 4)
        for _ in range(1000):
            now += 0.01
            monitor.update(mu, logvar)
        looks[share] = len(monitor.history) * monitor._records._stride
        assert share == "100%" or 0.01 < monitor.budget.spent_share < 0.021
    assert looks["100%"] > 900 and 20 < looks["2%"] < 300


def test_monitors_can_share_a_budget():
    budget = Budget("1%")
    first, second = PosteriorMonitor(budget=budget), PosteriorMonitor(budget=budget)
    assert first.budget is second.budget


def test_files_say_what_was_seen_and_stay_small(tmp_path):
    monitor = watching(update_frequency=1, folder=tmp_path)
    mu, logvar = torch.randn(256, 4), torch.zeros(256, 4)
    for _ in range(1200):
        monitor.update(mu, logvar)
    monitor.close()
    lines = [json.loads(line) for line in (tmp_path / "posterior.jsonl").read_text().splitlines()]
    assert 256 <= len(lines) < 512 and lines[-1]["step"] == 1200
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert lines[-1]["verdict"]["state"] == "healthy" and len(lines[-1]["kl"]) == 4
    assert lines[-1]["total_kl"] == pytest.approx(sum(lines[-1]["kl"]), rel=1e-2)
    assert len(monitor.history) < 256 and monitor.history[0].step == 1
    assert (tmp_path / "posterior.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["posterior.jsonl", "posterior.png"]


def test_a_summary_writer_gets_scalars_and_the_picture():
    class Writer:
        def __init__(self):
            self.scalars, self.figures = [], []

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

        def add_figure(self, name, figure, step, close):
            self.figures.append((name, step, len(figure.axes)))

    writer = Writer()
    monitor = watching(update_frequency=1, plot_frequency=4, writer=writer)
    for _ in range(8):
        monitor.update(torch.randn(256, 4), torch.zeros(256, 4), decode=lambda z: z.square())
    names = {name for name, *_ in writer.scalars}
    assert {f"posterior/{name}" for name in ("kl", "active", "mutual_information")} <= names
    monitor.close()
    assert writer.figures[-1][:2] == ("posterior", 8)


def test_a_full_disk_does_not_end_a_training(tmp_path):
    (tmp_path / "file").write_text("in the way")
    monitor = watching(update_frequency=1, folder=tmp_path / "file")
    for _ in range(3):
        monitor.update(torch.randn(256, 4), torch.zeros(256, 4))
    assert monitor.latest is not None


def test_a_decoder_that_fails_is_told_once_and_training_goes_on(capsys):
    def broken(z):
        raise ValueError("shapes do not match")

    monitor = watching(update_frequency=1)
    for _ in range(5):
        monitor.update(torch.randn(256, 4), torch.zeros(256, 4), decode=broken)
    said = capsys.readouterr().err
    boundary.faults.clear()
    assert said.count("shapes do not match") == 1
    assert monitor.latest is not None and monitor.latest.gap is None


def test_it_survives_pickling(tmp_path):
    monitor = watching(update_frequency=1, folder=str(tmp_path))
    again = pickle.loads(pickle.dumps(monitor))
    again.update(torch.randn(256, 4), torch.zeros(256, 4))
    assert isinstance(again, PosteriorMonitor) and again.budget.share == 1.0


def test_importing_is_cheap_and_late():
    code = (
        "import sys, hotlap.watch; late = {'torch', 'matplotlib', 'lightning', 'rich'}\n"
        "print(sorted(late & set(sys.modules)))\n"
        "hotlap.watch.PosteriorMonitor(); print(sorted(late & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert said == "[]\n['torch']\n"
