"""Training by mmengine's Runner: it learns from images, goes on from a checkpoint, and runs in every precision."""

from __future__ import annotations

import re

import pytest
import torch

from hotlap_recipes.lss_swin import SIX, train
from hotlap_recipes.lss_swin.config import find, load
from hotlap_recipes.lss_swin.evaluate import evaluated
from hotlap_recipes.lss_swin.evaluate import main as evaluate
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.pack import pack_split
from hotlap_recipes.lss_swin.sources import Wanted

SMOKE = "configs/lss_swin_nuscenes_smoke.py"
CELLS = (-32.0, 32.0, 1.0)
SMALL = {"data.image_size": (64, 176), "grid.x": CELLS, "grid.y": CELLS}
pytestmark = [
    # mmengine's own, in the versions that are to be had.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mmengine"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mmengine"),
    pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*:UserWarning"),
]


@pytest.fixture(scope="session")
def packed(tree, tmp_path_factory):
    """Both splits in small images and 64 x 64 cells of 1 m."""
    out = tmp_path_factory.mktemp("packed")
    for split in ("train", "val"):
        pack_split(str(tree), out, Wanted(split, SIX, (64, 176), BevGrid(CELLS, CELLS), "scaled"))
    return out


@pytest.fixture
def run(packed, tmp_path, capsys):
    """Trains in this process: exit code, what was said, and the folder."""

    def run(*words, work="work", config=SMOKE, **options):
        given = {
            **SMALL,
            "data.packed": packed,
            **{key.replace("__", "."): each for key, each in options.items()},
        }
        merged = [f"{key}={_word(value)}" for key, value in given.items()]
        folder = tmp_path / work
        code = train.main([config, "--work-dir", str(folder), *words, "--options", *merged])
        said = capsys.readouterr()
        return code, said.out + said.err, folder

    return run


def _word(value):
    return f"({','.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def weights(file):
    return torch.load(file, weights_only=False)["state_dict"]


def test_it_learns_from_the_images(run, packed, tree):
    """On its four training frames: a short form of `bench/lss_swin.py learn`, which validates on other streets."""
    steps, shape = 110, {"data__samples_per_gpu": 4, "optimizer__lr": 5e-3}
    code, said, folder = run(
        "--no-validate", runner__max_iters=steps, checkpoint_config__interval=steps, **shape
    )
    assert code == 0
    config = load(SMOKE, {**SMALL, "data.packed": str(packed)})
    constant, trained, swapped = evaluated(config, str(folder / f"iter_{steps}.pth"), "train").values()
    for name in ("IoU.vehicle", "IoU.drivable"):
        assert trained[name] > constant[name] + 0.05, (constant, trained)
        assert swapped[name] < trained[name] - 0.05, (trained, swapped)
    counted = re.search(r"trained (\d+) samples in [\d.]+ s, [\d.]+ samples/s", said)
    assert counted and int(counted[1]) == (steps - 1) * 4, "the first iteration is start-up"


def test_a_resumed_run_is_the_run_that_was_not_interrupted(run):
    """Also the random numbers of the drop path, the optimizer, the schedule and the order of the data."""
    code, said, whole = run(work="whole", model__drop_path_rate=0.5)
    assert code == 0
    assert said.count("mIoU") == 2, "after two and after four iterations"
    _, _, again = run("--no-validate", work="again", model__drop_path_rate=0.5)
    first, second = weights(whole / "iter_2.pth"), weights(again / "iter_2.pth")
    assert all(torch.equal(first[key], second[key]) for key in first), "a seed is a seed, validated or not"
    code, said, rest = run(
        "--no-validate", "--resume-from", str(whole / "iter_2.pth"), work="rest", model__drop_path_rate=0.5
    )
    assert code == 0 and not (rest / "iter_2.pth").exists()
    one, other = weights(whole / "iter_4.pth"), weights(rest / "iter_4.pth")
    assert list(one) == list(other)
    assert all(torch.equal(one[key], other[key]) for key in one)
    before = weights(whole / "iter_2.pth")
    assert any(not torch.equal(one[key], before[key]) for key in one)


@pytest.mark.parametrize("precision", ["fp16 = dict(loss_scale=512.0)", "bf16 = True"])
def test_half_precision_trains(run, precision, tmp_path):
    (tmp_path / "half.py").write_text(f"_base_ = [{str(find(SMOKE))!r}]\n{precision}\n")
    code, _, folder = run("--no-validate", config=str(tmp_path / "half.py"), runner__max_iters=2)
    assert code == 0
    assert all(each.isfinite().all() for each in weights(folder / "iter_2.pth").values())


def test_evaluation_of_a_checkpoint(run, packed, capsys):
    _, _, folder = run("--no-validate", runner__max_iters=2)
    words = [f"{key}={_word(value)}" for key, value in {**SMALL, "data.packed": packed}.items()]
    assert evaluate([SMOKE, str(folder / "iter_2.pth"), "--options", *words]) == 0
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert [line[:28].strip() for line in lines] == [
        "",
        "one constant map",
        "trained",
        "trained, images swapped",
    ]
    assert evaluate([SMOKE, "any.pth", "--options", "data.rot=x"]) == 2
    assert "did you mean 'data.root'?" in capsys.readouterr().err


def test_a_tree_that_is_not_there(run, tmp_path, capsys):
    words = ["--work-dir", str(tmp_path), "--options", f"data.root={tmp_path / 'gone'}"]
    assert train.main([SMOKE, *words]) == 2
    assert str(tmp_path / "gone") in capsys.readouterr().err
