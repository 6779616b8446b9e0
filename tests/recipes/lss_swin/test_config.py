"""Configurations: found, merged, scaled, and refused with the nearest spelling."""

from __future__ import annotations

import gc
import os
import warnings

import pytest
import torch

from hotlap_recipes.lss_swin import BadInputError, train, translate
from hotlap_recipes.lss_swin.config import PACKAGE, find, load
from hotlap_recipes.lss_swin.precision import CpuAmpOptimWrapper

BASELINE = "configs/lss_swin_nuscenes.py"


def silent(_):
    pass


@pytest.mark.parametrize(
    ("name", "batch", "workers", "ahead", "half", "lr"),
    [
        ("nuscenes", 4, 8, 2, None, 2e-4),
        ("nuscenes_naive", 4, 8, 2, None, 2e-4),
        ("nuscenes_optimized", 6, 12, 4, "float16", 3e-4),
        ("nuscenes_speed_first", 4, 16, 8, "float16", 2e-4),
        ("nuscenes_high_memory", 8, 12, 4, "float16", 4e-4),
        ("nuscenes_bf16", 6, 12, 4, "bfloat16", 3e-4),
    ],
)
def test_the_configurations_that_users_compare(name, batch, workers, ahead, half, lr, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # found where the package is, wherever one stands
    config = load(f"configs/lss_swin_{name}.py")
    data = config.data
    assert (data.samples_per_gpu, data.workers_per_gpu, data.prefetch_factor) == (batch, workers, ahead)
    wrapper = translate.optim_wrapper(config, silent)
    assert wrapper.get("dtype") == half
    assert wrapper["optimizer"]["lr"] == pytest.approx(lr), "by the configuration, not by hand"


def test_every_configuration_is_read_and_is_package_data():
    files = sorted((PACKAGE / "configs").glob("*.py"))
    assert len(files) >= 7
    for file in files:
        load(f"configs/{file.name}")


def test_the_learning_rate_follows_the_samples_of_a_step():
    said = []
    config = load(BASELINE, {"data.samples_per_gpu": 2, "runner.accumulative_counts": 6})
    wrapper = translate.optim_wrapper(config, said.append)
    assert (wrapper["optimizer"]["lr"], wrapper["accumulative_counts"]) == (pytest.approx(6e-4), 6)
    assert said == ["optimizer.lr is 0.0002 for a batch of 4: 0.0006 for one of 12."]
    fixed = load(BASELINE, {"data.samples_per_gpu": 8, "auto_scale_lr.enable": False})
    assert translate.optim_wrapper(fixed, silent)["optimizer"]["lr"] == 2e-4


def test_a_file_of_the_users_builds_on_one_of_the_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        f"_base_ = [{str(find(BASELINE))!r}]\n_wide = (128, 704)\ndata = dict(samples_per_gpu=8, image_size=_wide)\n"
    )
    config = load("mine.py", {"runner.max_iters": 7})
    assert config.data.image_size == (128, 704) and config.data.workers_per_gpu == 8
    assert config.runner.max_iters == 7


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("runner.max_iter", 100, "no key 'runner.max_iter'.\n  -> did you mean 'runner.max_iters'?"),
        ("data.sample_per_gpu", 8, "-> did you mean 'data.samples_per_gpu'?"),
        ("samples_per_gpu", 8, "-> did you mean 'data.samples_per_gpu'?"),
        ("evalution.interval", 8, "no key 'evalution'.\n  -> did you mean 'evaluation'?"),
        ("optimizer.weight_deacy", 0.1, "-> did you mean 'optimizer.weight_decay'?"),
        ("optimizer.type", "AdmaW", "-> did you mean 'AdamW'?"),
        ("fp16.loss_scales", 512.0, "-> did you mean 'fp16.loss_scale'?"),
        ("model.splat", "cumsun", "-> did you mean 'cumsum'?"),
        ("evaluation.metric", "mIou", "-> did you mean 'mIoU'?"),
        ("data.samples_per_gpu", 0, "data.samples_per_gpu is 0, not a whole number, at least 1."),
        ("data.workers_per_gpu", "two", "data.workers_per_gpu is 'two'"),
        ("data.cameras", ("CAM_TOP",), "data.cameras is"),
        ("runner", 5, "runner is 5.\n  -> it is a dict with type, max_iters"),
        ("lr_config.policy", "step", "lr_config.policy is 'step', not one of poly"),
        ("zzz", 1, "no key 'zzz'.\n  -> the keys of a configuration are model, grid, data"),
    ],
)
def test_what_is_misspelt_or_unfit_is_refused(key, value, message):
    options = {"fp16": {"loss_scale": 1.0}} if key.startswith("fp16.") else {}
    with pytest.raises(BadInputError) as told:
        load(BASELINE, {**options, key: value})
    assert message in str(told.value)


def test_a_misspelt_key_on_the_command_line(capsys, tmp_path):
    words = [BASELINE, "--work-dir", str(tmp_path), "--options", "data.sample_per_gpu=8"]
    assert train.main(words) == 2
    assert (
        capsys.readouterr().err
        == "there is no key 'data.sample_per_gpu'.\n  -> did you mean 'data.samples_per_gpu'?\n"
    )


def test_other_things_that_cannot_be(tmp_path, capsys):
    assert train.main(["configs/lss_swin_nuscene.py"]) == 2
    assert "did you mean 'configs/lss_swin_nuscenes.py'?" in capsys.readouterr().err
    assert train.main([BASELINE, "--resume-from", "gone.pth"]) == 2
    assert "resume_from is gone.pth, and there is no such file" in capsys.readouterr().err
    assert train.main([BASELINE, "--gpu-ids", "0", "1"]) == 2
    assert "torchrun --nproc_per_node 2" in capsys.readouterr().err
    (tmp_path / "broken.py").write_text("data = dict(\n")
    assert train.main([str(tmp_path / "broken.py")]) == 2
    assert f"{tmp_path / 'broken.py'} cannot be read" in capsys.readouterr().err
    with warnings.catch_warnings():  # mmengine leaves its copy of such a file open
        warnings.simplefilter("ignore")
        gc.collect()
    (tmp_path / "empty.py").write_text("seed = 1\n")
    assert train.main([str(tmp_path / "empty.py")]) == 2
    assert "the configuration has no model.size" in capsys.readouterr().err
    with pytest.raises(BadInputError, match="fp16 and bf16 are both set"):
        load("configs/lss_swin_nuscenes_optimized.py", {"bf16": True})
    with pytest.raises(
        BadInputError, match=r"data.image_size is 100 x 352, which model.stride=16 does not divide"
    ):
        translate.build_model(load(BASELINE, {"data.image_size": (100, 352), "model.size": "tiny"}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(monkeypatch, capsys):
    train.choose_gpu([0])
    assert capsys.readouterr().out == "there is no GPU here: --gpu-ids 0 is not used, the processor trains.\n"
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(BadInputError, match="torchrun started this process"):
        train.choose_gpu(None)


def test_workers_beyond_the_cores_are_lowered_with_a_message(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    said = []
    assert translate.workers_here(3, said.append) == 3 and said == []
    assert translate.workers_here(16, said.append) == 3
    assert said == ["data.workers_per_gpu is 16, and this machine has 3 cores: 3 workers are started."]


def test_warm_up_then_poly():
    config = load(BASELINE, {"runner.max_iters": 2000, "lr_config.power": 0.9, "lr_config.min_lr": 1e-6})
    warm, poly = translate.schedulers(config)
    assert (warm["type"], warm["begin"], warm["end"], warm["by_epoch"]) == ("LinearLR", 0, 1500, False)
    assert (poly["type"], poly["begin"], poly["end"], poly["power"]) == ("PolyLR", 1500, 2000, 0.9)
    assert poly["eta_min"] == 1e-6
    short = translate.schedulers(load(BASELINE, {"runner.max_iters": 100}))
    assert [each["type"] for each in short] == ["LinearLR"], "a run that ends within its warm-up"


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it is mmengine's own wrapper")
@pytest.mark.parametrize(("scale", "first", "later"), [(512, 512.0, 512.0), ("dynamic", 65536.0, 32768.0)])
def test_the_loss_scale_is_fixed_or_dynamic(scale, first, later):
    """After a step whose gradients were not finite, a dynamic one is halved; the parameters stay."""
    config = load("configs/lss_swin_nuscenes_optimized.py", {"fp16.loss_scale": scale})
    words = translate.optim_wrapper(config, silent)
    assert words.pop("type") is CpuAmpOptimWrapper
    net = torch.nn.Linear(2, 1)
    wrapper = CpuAmpOptimWrapper(**{**words, "optimizer": torch.optim.AdamW(net.parameters())})
    assert wrapper.loss_scaler.get_scale() == first
    before = net.weight.detach().clone()
    wrapper.update_params(net(torch.tensor([[1e38, 1.0]])).sum() * 1e30)
    assert wrapper.loss_scaler.get_scale() == later
    assert torch.equal(net.weight, before)
    other = CpuAmpOptimWrapper(**{**words, "optimizer": torch.optim.AdamW(net.parameters())})
    other.load_state_dict(wrapper.state_dict())
    assert other.loss_scaler.get_scale() == later
