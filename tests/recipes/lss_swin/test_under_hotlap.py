"""The recipe as it is, under hotlap: what is slow is named, and faults go down the ladder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from hotlap_recipes.lss_swin.config import find, load
from hotlap_recipes.lss_swin.translate import build_model

TRAIN = ("-m", "hotlap_recipes.lss_swin.train")
HERE = Path(__file__).parent
HOOKS = os.pathsep.join([str(HERE), str(HERE.parents[1] / "faults")])  # and what they import


@pytest.fixture
def hotlap(tree, tmp_path):
    """`hotlap COMMAND [options] -m hotlap_recipes.lss_swin.train CONFIG --options ...` in a folder of its own."""

    def call(command, options, config, *words):
        merged = (f"data.root={tree}", "data.workers_per_gpu=0", "model.size=tiny", *words)
        argv = [sys.executable, "-m", "hotlap", command, "--out", "run", *options, *TRAIN, config]
        done = subprocess.run(
            [*argv, "--work-dir", "work", "--options", *merged],
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": HOOKS},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    return call


def test_the_naive_configuration_is_told_its_decode_splat_and_evaluation(hotlap, tmp_path):
    hotlap(
        "profile",
        ("--steps", "10", "--experiments", "15s", "--json", "view.json"),
        "configs/lss_swin_nuscenes_naive.py",
        "data.samples_per_gpu=2",
        "evaluation.interval=2",
        "runner.max_iters=40",
    )
    view = json.loads((tmp_path / "view.json").read_text())
    found = {finding["cause"]: finding for finding in view["findings"]}
    assert found["item-cpu-bound"]["where"]["function"].endswith("full_pixels"), "decode"
    assert found["validation-heavy"]["share"] > 0.1, "evaluation"
    assert found["gather-heavy"]["where"]["file"].endswith("splat.py"), "splat"


def test_float16_that_overflows_goes_on_in_bfloat16(hotlap, tmp_path):
    """A convolution with large weights: the norm behind it makes up for them, but float16 has not the range."""
    grid = ("grid.x=(-50,50,2.0)", "grid.y=(-50,50,2.0)", "data.image_size=(64,176)")
    torch.manual_seed(0)
    cells = (-50.0, 50.0, 2.0)
    small = {"model.size": "tiny", "data.image_size": (64, 176), "grid.x": cells, "grid.y": cells}
    model = build_model(load("configs/lss_swin_nuscenes_smoke.py", small))
    with torch.no_grad():
        model.network.bev.fine[0][0].weight.mul_(1e8)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "large.pth")
    done = hotlap(
        "run",
        ("--set", "precision=16-mixed"),
        "configs/lss_swin_nuscenes_smoke.py",
        *grid,
        "load_from=large.pth",
        "evaluation.interval=100",
    )
    said = " ".join(done.stderr.replace("hotlap:", "").split())
    assert "precision went from 16-mixed to bf16-mixed at step 1: the loss is not finite" in said
    applied = json.loads((tmp_path / "run/applied.json").read_text())
    assert [(each["knob"], each["after"]) for each in applied["step_downs"]] == [("precision", "bf16-mixed")]
    assert applied["steps"] == 4
    trained = torch.load(tmp_path / "work/iter_4.pth", weights_only=False)["state_dict"]
    assert all(each.isfinite().all() for each in trained.values()), "running averages were put back"


@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc are those of Linux")
def test_a_batch_that_does_not_fit_is_halved_and_the_effective_batch_kept(hotlap, tmp_path):
    # 128 x 352 images: steps of 8 samples take some 380 MB, of 4 some 200.
    (tmp_path / "limited.py").write_text(
        f"_base_ = [{str(find('configs/lss_swin_nuscenes_smoke.py'))!r}]\n"
        "custom_imports = dict(imports=['limited_memory'])\n"
        "custom_hooks = [dict(type='LimitedMemory', extra_mb=300)]\n"
    )
    done = hotlap(
        "run", (), "limited.py", "data.samples_per_gpu=8", "evaluation.interval=100", "data.decode=scaled"
    )
    assert "batch-size went from 8 to 4 at step 1: out of memory" in done.stderr
    corrected = yaml.safe_load((tmp_path / "run/corrected.yaml").read_text())["settings"]
    assert corrected["batch-size"] * corrected["accumulate"] == 8
    assert "optimizer.lr is 0.0002 for a batch of 4: 0.0004 for one of 8." in done.stdout
    applied = json.loads((tmp_path / "run/applied.json").read_text())
    assert applied["starts"] >= 2
