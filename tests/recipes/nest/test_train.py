"""Training as users start it: by the command with overrides, on two processes, resumed in mid-epoch, on bad data."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys

import numpy as np
import pytest
import soundfile
import torch

from hotlap_recipes.nest import BadInputError
from hotlap_recipes.nest.export import main as export
from hotlap_recipes.nest.module import Noam, NonFiniteLossError
from hotlap_recipes.nest.settings import check
from hotlap_recipes.nest.train import build, main, precision, train, trainer_options

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
]


def weights_of(trainer):
    return torch.cat([each.detach().flatten().double() for each in trainer.lightning_module.parameters()])


@pytest.mark.parametrize("name", ["nest_fast-conformer", "nest_fast-conformer_fast"])
def test_a_run_that_is_resumed_in_mid_epoch_ends_as_if_it_had_not_ended(composed, name):
    """The first run ends within its second epoch."""
    given = ["model.train_ds.num_workers=0", "model.train_ds.batch_size=4", "trainer.max_epochs=3"]
    whole = train(composed(*given, "exp_manager.name=whole", name=name))
    steps = whole.global_step // 3 + 2
    every = "exp_manager.checkpoint_callback_params.every_n_train_steps=2"
    part = train(composed(*given, "exp_manager.name=part", every, f"trainer.max_steps={steps}", name=name))
    resumed = train(composed(*given, "exp_manager.name=part", every, name=name))
    assert part.global_step == steps < resumed.global_step == whole.global_step
    assert torch.equal(weights_of(resumed), weights_of(whole))


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_stays(new_pages):
    before, after = new_pages(
        "from hotlap_recipes.nest.train import keep_freed_memory", "keep_freed_memory()"
    )[1:]
    assert after < 100 < 1000 < before


@pytest.mark.parametrize("asked", [True, False])
def test_it_stays_only_if_the_config_says_so(composed, monkeypatch, asked):
    called = []
    monkeypatch.setattr("hotlap_recipes.nest.train.keep_freed_memory", lambda: called.append(True))
    build(composed(f"keep_freed_memory={asked}"))
    assert bool(called) is asked


def test_the_loss_falls(composed, speech):
    config = composed(
        "model.train_ds.batch_size=4",
        "model.validation_ds.manifest_filepath=" + str(speech / "train_manifest.json"),
        "model.validation_ds.max_duration=3",
        "model.train_ds.batch_augmentor.prob=0",
        "model.encoder.dropout=0",
        "trainer.max_epochs=15",
        "trainer.check_val_every_n_epoch=15",
        name="nest_fast-conformer_fast",
    )
    config.model.train_ds.num_workers = 0
    trainer = train(config)
    found = float(trainer.callback_metrics["val_loss"])
    assert found < math.log(256) - 0.15, "better than to guess among 256 codes"


def test_two_processes_train_packed_speech_by_the_command(speech, packed_once, tmp_path, run_script):
    ended = run_script(
        "-m",
        "hotlap_recipes.nest.train",
        "--config-name=nest_fast-conformer_fast",
        "size=tiny",
        f"model.train_ds.manifest_filepath={packed_once}/tarred_audio_manifest.json",
        f"model.train_ds.tarred_audio_filepaths={packed_once}/audio__OP_0..2_CL_.tar",
        "model.train_ds.batch_size=2",
        f"model.train_ds.noise_manifest={speech}/noise_manifest.json",
        f"model.validation_ds.manifest_filepath={speech}/validation_manifest.json",
        "model.train_ds.max_duration=4",
        "model.train_ds.num_workers=1",
        "trainer.accelerator=cpu",
        "trainer.devices=2",
        "trainer.max_epochs=2",
        "trainer.limit_train_batches=3",
        "trainer.accumulate_grad_batches=2",
        "trainer.enable_progress_bar=false",
        "exp_manager.checkpoint_callback_params.every_n_train_steps=2",
        f"exp_manager.exp_dir={tmp_path}",
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert re.search(r"MEMBER: 2/2", ended.stderr), "both came to the start"
    assert ended.stdout.count("sync_batchnorm: torch has none for the CPU") == 1
    folder = tmp_path / "NEST-FastConformer-SSL"
    (last,) = (folder / "resume").glob("step=*.ckpt")
    saved = torch.load(last, weights_only=True)
    assert saved["global_step"] == 4, "3 batches are 2 steps of up to 2"
    assert list((folder / "checkpoints").glob("*val_loss=*.ckpt")) and list(folder.glob("events.*"))
    assert export(["to-nemo", str(last), str(tmp_path / "nest.nemo")]) == 0
    assert export(["from-nemo", str(tmp_path / "nest.nemo"), str(tmp_path / "nest.pt")]) == 0
    back = torch.load(tmp_path / "nest.pt", weights_only=True)
    assert all(torch.equal(saved["state_dict"][f"nest.{key}"], value) for key, value in back.items())


@pytest.fixture
def spoiled(speech, tmp_path):
    """The speech with two bad files and one bad line."""
    folder = tmp_path / "spoiled"
    shutil.copytree(speech, folder)
    lines = (folder / "train_manifest.json").read_text().splitlines()
    short = sorted(lines, key=lambda line: json.loads(line)["duration"])
    (folder / json.loads(short[3])["audio_filepath"]).unlink()
    soundfile.write(folder / json.loads(short[8])["audio_filepath"], np.zeros(8000), 8000)
    (folder / "train_manifest.json").write_text("\n".join([*lines, "{torn"]) + "\n")
    return folder


@pytest.fixture
def called(monkeypatch, capsys):
    """`called(code, *words)`: the command ends with this exit code; what it has printed."""

    def call(code, *words):
        monkeypatch.setattr(sys, "argv", list(words))
        ended = None
        try:
            main()
        except SystemExit as exit_:
            ended = exit_.code
        told = capsys.readouterr()
        assert ended == code, told
        return told

    return call


def overrides(folder, tmp_path, *others):
    return [
        "train",
        "size=tiny",
        f"model.train_ds.manifest_filepath={folder}/train_manifest.json",
        "model.train_ds.max_duration=3",
        "trainer.accelerator=cpu",
        "trainer.max_epochs=1",
        "trainer.enable_progress_bar=false",
        "+trainer.enable_model_summary=false",
        f"exp_manager.exp_dir={tmp_path}",
        *others,
    ]


@pytest.mark.parametrize(
    ("others", "code", "words"),
    [
        (["model.train_ds.max_bad_share=0.2"], None, "while training: 1 missing, 1 of another sample rate"),
        (["model.train_ds.max_bad_share=0.05"], 2, "2 of 28 clips are bad"),
        (["model.train_ds.on_bad_clip=refuse"], 2, "1 of 28 clips are bad: 1 not a JSON object of a clip"),
        (["model.train_ds.min_duration=100", "model.train_ds.max_bad_share=1"], 2, "no clip is left of 28"),
        (["model.encoder.subsampling=striding"], 2, "model.encoder.subsampling is striding"),
        (["model.train_ds.is_tarred=true", "model.train_ds.max_bad_share=1"], 2, "filepaths names nothing"),
    ],
    ids=["skipped", "too many", "refused", "nothing left", "unknown", "no shards"],
)  # fmt: skip
def test_bad_data_are_counted_or_refused(spoiled, tmp_path, called, others, code, words):
    told = called(code, *overrides(spoiled, tmp_path, *others))
    assert words in (told.err if code else told.out)


@pytest.mark.parametrize(("word", "code"), [("max_bad_share=0.6", None), ("on_bad_clip=refuse", 2)])
def test_of_a_torn_shard_the_clips_are_counted_or_refused(packed, tmp_path, called, word, code):
    """The clips of the other shards are trained on."""
    os.truncate(packed / "audio_1.tar", (packed / "audio_1.tar").stat().st_size // 2)
    told = called(
        code,
        *overrides(
            packed,
            tmp_path,
            f"model.train_ds.manifest_filepath={packed}/tarred_audio_manifest.json",
            f"model.train_ds.tarred_audio_filepaths={packed}/audio__OP_0..2_CL_.tar",
            "model.train_ds.is_tarred=true",
            f"model.train_ds.{word}",
        ),
    )
    assert "in a torn shard" in (told.err if code else told.out)
    assert ("trained " in told.out) is (code is None)


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(composed):
    config = composed("model.optim.lr=1e30", "trainer.log_every_n_steps=1", "trainer.max_epochs=1")
    with pytest.raises(
        NonFiniteLossError, match=r"the loss is (nan|inf) at step \d+(?s:.)*lower model.optim.lr"
    ):
        train(config)


def test_a_key_that_would_be_ignored_is_refused(composed):
    check(composed())
    for override in (
        "model.mask_position=post_conv",
        "model.encoder.att_context_size=[70,1]",
        "+model.train_ds.use_lhotse=true",
    ):
        with pytest.raises(BadInputError, match=override.lstrip("+").partition("=")[0]):
            check(composed(override))
    with pytest.raises(BadInputError, match="computes MultiSoftmaxDecoder only"):
        check(composed("model.decoder._target_=nemo.collections.asr.modules.ConvASRDecoder"))
    with pytest.raises(BadInputError, match="take a multiple of the subsampling, 8"):
        check(composed("model.preprocessor.pad_to=12"))


def test_options_of_the_trainer_are_what_they_mean_without_a_gpu(composed):
    options = trainer_options(composed("trainer.devices=-1").trainer)
    assert (options["devices"], options["strategy"], options["precision"]) == (1, "auto", "32-true")
    options = trainer_options(composed("trainer.devices=2").trainer)
    assert options["strategy"] == ("ddp" if hasattr(os, "fork") else "ddp_spawn")
    assert precision("bf16", on_gpu=False) == "bf16-mixed" and precision(16, on_gpu=True) == "16-mixed"


@pytest.mark.parametrize(
    ("amx", "bf16", "meant"),
    [(False, False, "32-true"), (False, True, "bf16-mixed"), (True, False, "bf16-mixed")],
)
def test_auto_is_what_the_cpu_has_units_for(monkeypatch, amx, bf16, meant):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    assert precision("auto", on_gpu=False) == meant


def test_the_rate_rises_to_the_end_of_the_warm_up_and_falls():
    noam = Noam(d_model=64, warmup=100, least=1e-9)
    rates = [noam(step) for step in range(1, 1000)]
    assert np.argmax(rates) == 99
    assert rates[99] == pytest.approx(64**-0.5 * 100**-0.5)
    assert rates[399] == pytest.approx(rates[99] / 2)
    assert Noam(64, 100, 0.01)(10**9) == 0.01
