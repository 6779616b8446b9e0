"""Training with Lightning: every way trains the same model, the monitor tells collapse from health."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import lightning
import pytest
import torch
from torch.utils.data import DataLoader

from hotlap.watch import PosteriorMonitor
from hotlap_recipes.seqset_vae import make_data, train
from hotlap_recipes.seqset_vae.data import Collate
from hotlap_recipes.seqset_vae.module import Objective, Pretraining, inputs_of
from hotlap_recipes.seqset_vae.subjects import ParquetSubjects

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
    pytest.mark.filterwarnings("ignore:.*no `val_dataloader`"),
]


@pytest.fixture
def trained(data_dir, tmp_path):
    """Trains the tiny network in this process, for one epoch: the trainer, with all that it knows."""

    def run(*words, folder=data_dir):
        always = ["--data_dir", folder, "--out", tmp_path / "runs", "--size", "tiny", "--epochs", 1]
        options = train.parse([str(word) for word in (*always, "--max_sequence_length", 60, *words)])
        return train.train(options)

    return run


def parameters(trainer):
    return torch.cat([each.detach().flatten() for each in trainer.lightning_module.parameters()])


def test_packing_and_padding_train_the_same_model(trained, capsys):
    naive = parameters(trained("--naive", "--disable_metrics_monitoring"))
    packed = parameters(trained("--disable_metrics_monitoring"))
    dynamic = parameters(trained("--use_dynamic_padding", "--disable_metrics_monitoring"))
    watched = parameters(trained("--use_dynamic_padding"))
    assert torch.equal(naive, packed)
    assert torch.equal(dynamic, watched)
    torch.testing.assert_close(dynamic, naive, rtol=0.0, atol=2e-3)
    told = capsys.readouterr().out
    assert len(re.findall(r"trained 48 sequences in [\d.]+ s, [\d.]+ sequences/s", told)) == 4


def test_the_trainer_is_as_its_users_expect(trained, tmp_path):
    trainer = trained("--preset", "quick", "--size", "tiny", "--gradient_accumulation_steps", 2)
    assert trainer.global_step == 6
    assert trainer.val_check_batch == 1  # a tenth of 12 batches
    assert trainer.limit_val_batches == 1  # a tenth of 3 batches is none
    checkpoints = sorted((tmp_path / "runs").rglob("*.ckpt"))
    assert len(checkpoints) == 2
    assert list((tmp_path / "runs").rglob("events.out.tfevents*"))
    assert not any("Summary" in type(each).__name__ for each in trainer.callbacks)
    assert not trainer._detect_anomaly


def test_finetuning_trains_a_head_on_the_frozen_model(trained, data_dir, tmp_path, capsys):
    trained("--preset", "debug")
    checkpoint = next((tmp_path / "runs" / "pretrain").rglob("*.ckpt"))
    before = torch.load(checkpoint, weights_only=True)["state_dict"]
    words = ("--mode", "finetune", "--checkpoint", checkpoint, "--use_dynamic_padding", "--bucket_by_length")
    trainer = trained(*words)
    module = trainer.lightning_module
    for name, value in before.items():
        assert torch.equal(module.state_dict()[name], value)
    assert 0.0 <= float(trainer.callback_metrics["valid/accuracy"]) <= 1.0
    assert set(trainer.optimizers[0].state) == set(module.head.parameters())

    other = make_data.write_subjects(tmp_path / "other", (4, 2, 2), 8, (4, 6))
    assert train.main(["--data_dir", str(other), *map(str, words)]) == 2
    assert "trained on embeddings of 16 numbers" in capsys.readouterr().err


def test_two_processes_in_half_precision(data_dir, tmp_path):
    """A real run with gloo, as a user starts it."""
    words = ["--data_dir", str(data_dir), "--out", str(tmp_path), "--preset", "debug", "--size", "tiny"]
    command = [sys.executable, "-m", "hotlap_recipes.seqset_vae.train", *words]
    ended = subprocess.run(
        [*command, "--devices", "2", "--precision", "bf16-mixed", "--max_sequence_length", "60"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert re.search(r"trained 48 sequences in", ended.stdout)
    saved = torch.load(next(tmp_path.rglob("*.ckpt")), weights_only=True)
    assert all(value.isfinite().all() for value in saved["state_dict"].values())


def test_the_naive_way_plots_every_20_steps(trained, tmp_path):
    trained("--naive", "--batch_size", 2)
    plots = sorted(path.name for path in (tmp_path / "runs").rglob("monitor/*.png"))
    assert plots == ["step_000001.png", "step_000021.png"]


@pytest.fixture(scope="module")
def known_factors(tmp_path_factory):
    """Batches of 16 subjects to train on, and 64 others, with their factors."""
    folder = make_data.write_subjects(tmp_path_factory.mktemp("known") / "data", (192, 1, 64), 24, (8, 10))
    found = {}
    for split in ("train", "test"):
        subjects = ParquetSubjects(str(folder), split)
        items = [subjects[index] for index in range(len(subjects))]
        names = [name for name in subjects.table.columns if name.startswith("factor_")]
        factors = torch.tensor(subjects.table[names].to_numpy(), dtype=torch.float32)
        found[split] = [Collate(10, False)(items[at : at + 16]) for at in range(0, len(items), 16)], factors
    shutil.rmtree(folder)
    return found


def recovered(module, known):
    """Share of the factors' variance that a linear map finds in drawn latents of subjects not trained on."""
    drawn = {}
    with torch.no_grad():
        for split, (batches, _) in known.items():
            latents = torch.cat([module.model.encoder(**inputs_of(batch)).draw() for batch in batches])
            drawn[split] = torch.cat([latents, torch.ones(len(latents), 1)], 1)
    slope = torch.linalg.lstsq(drawn["train"], known["train"][1]).solution
    left = (drawn["test"] @ slope - known["test"][1]).square().mean(0)
    return float((1.0 - left / known["test"][1].var(0)).mean())


@pytest.mark.parametrize(("beta", "healthy"), [(1.0, True), (40.0, False)])
def test_the_monitor_tells_collapse_from_health(known_factors, tmp_path, beta, healthy):
    torch.manual_seed(0)
    batches, _ = known_factors["train"]
    module = Pretraining(24, "tiny", Objective(beta, warmup=20, free_bits=0.0, lr=5e-3))
    monitor = PosteriorMonitor(update_frequency=1, plot_frequency=10**6, budget="100%", folder=tmp_path)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=220,
        logger=False,
        callbacks=[monitor],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(batches, batch_size=None, shuffle=True))
    assert monitor.latest.gap is not None  # the module says how other latents are decoded
    if healthy:
        assert str(monitor.verdict.state) == "healthy"
        assert monitor.latest.gap > 0.02
        assert recovered(module, known_factors) > 0.2
    else:
        assert str(monitor.verdict.state) == "collapsed"
        assert len(monitor.verdict.dimensions) == 16
        assert recovered(module, known_factors) < 0.1
