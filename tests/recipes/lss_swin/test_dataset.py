"""Items of a rendered tree: pictures, cameras and targets tell of the same world, however they are read."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.pack import main, pack_split
from hotlap_recipes.lss_swin.pictures import MEAN, STD
from hotlap_recipes.lss_swin.sources import Wanted


@pytest.fixture(scope="module")
def items(tree):
    """All training items, as usually written."""
    return list(NuScenesBev(str(tree), "train"))


def test_an_item_has_the_promised_shapes(items):
    item = items[0]
    shapes = {name: tuple(value.shape) for name, value in item.items() if name != "rig"}
    assert shapes == {
        "images": (6, 3, 128, 352),
        "intrinsics": (6, 3, 3),
        "camera_to_ego": (6, 4, 4),
        "target": (2, 200, 200),
    }
    assert {value.dtype for name, value in item.items() if name != "rig"} == {torch.float32}
    assert isinstance(item["rig"], int)
    assert set(item["target"].unique().tolist()) == {0.0, 1.0}


def test_splits_are_those_of_the_scenes(tree, items):
    assert len(items) == 4 and len(NuScenesBev(str(tree), "val")) == 2


def test_pictures_cameras_and_targets_agree(items):
    """Seen through its camera, ground that is drawn as drivable is grey, and other ground hardly ever is.

    A wrong axis, a lens of another size or a crop that is forgotten brings this down to what chance gives.
    """
    right = total = 0
    for item in items:
        for camera in range(6):
            grey, drivable = grey_and_drivable(item, camera)
            right += int((grey == drivable).sum())
            total += len(grey)
    assert total > 50_000
    assert right / total > 0.93


def grey_and_drivable(item, camera):
    """For each pixel of the ground between 4 and 25 m that no vehicle hides: what is seen, what is drawn."""
    rows, columns = np.indices((128, 352))
    rays = (
        np.stack([columns, rows, np.ones_like(rows)], axis=-1)
        @ np.linalg.inv(item["intrinsics"][camera].numpy()).T
    )
    pose = item["camera_to_ego"][camera].numpy()
    rays = rays @ pose[:3, :3].T
    with np.errstate(divide="ignore"):
        ground = pose[:3, 3] + rays * (-pose[2, 3] / rays[..., 2])[..., None]
    apart = np.hypot(ground[..., 0], ground[..., 1])
    near = (rays[..., 2] < 0) & (apart > 4) & (apart < 25)
    pixels = (item["images"][camera] * STD + MEAN).permute(1, 2, 0).numpy()[near]
    cells = np.floor((ground[near][:, :2] + 50) / 0.5).astype(int)
    drivable = item["target"][1].numpy()[cells[:, 0], cells[:, 1]] > 0
    spread, level = pixels.max(axis=1) - pixels.min(axis=1), pixels.mean(axis=1)
    painted = (spread < 0.12) & (level > 0.28) & (level < 0.45)
    grass = (pixels[:, 1] > pixels[:, 0] + 0.08) & (pixels[:, 1] > pixels[:, 2] + 0.08)
    ground_colour = painted | grass
    return painted[ground_colour], drivable[ground_colour]


def test_vehicles_stand_on_streets(items):
    vehicles, drivable = (torch.stack([item["target"][at] for item in items]).bool() for at in (0, 1))
    assert vehicles.sum() > 1000
    assert (vehicles & drivable).sum() / vehicles.sum() > 0.85


def test_equal_rigs_have_equal_cameras_in_both_splits(tree, items):
    everything = [*items, *NuScenesBev(str(tree), "val", decode="scaled")]
    by_rig: dict[int, list] = {}
    for item in everything:
        by_rig.setdefault(item["rig"], []).append(item)
    assert sorted(map(len, by_rig.values())) == [2, 4]
    for same in by_rig.values():
        assert all(torch.equal(item["intrinsics"], same[0]["intrinsics"]) for item in same)
        assert all(torch.equal(item["camera_to_ego"], same[0]["camera_to_ego"]) for item in same)
    one, other = (same[0] for same in by_rig.values())
    assert not torch.equal(one["intrinsics"], other["intrinsics"])


def test_scaled_decoding_changes_the_images_a_little_and_nothing_else(tree, items):
    for full, scaled in zip(items, NuScenesBev(str(tree), "train", decode="scaled"), strict=True):
        apart = (full["images"] - scaled["images"]).abs()
        assert 0 < apart.mean() < 0.02 * full["images"].std() + 0.01
        assert all(
            torch.equal(full[name], scaled[name]) for name in ("intrinsics", "camera_to_ego", "target")
        )
        assert full["rig"] == scaled["rig"]


def test_packed_items_are_those_of_the_tree(tree, items, tmp_path):
    pack_split(str(tree), tmp_path, Wanted("train"))
    packed = NuScenesBev("a tree that is not needed", "train", packed=str(tmp_path))
    assert len(packed) == len(items)
    for item, again in zip(items, packed, strict=True):
        torch.testing.assert_close(again["images"], item["images"], rtol=0, atol=1e-6)
        assert all(torch.equal(item[name], again[name]) for name in ("intrinsics", "camera_to_ego", "target"))
        assert item["rig"] == again["rig"]
        assert again["images"].is_contiguous()


def test_cameras_size_and_grid_can_be_chosen_and_packed_by_command(tree, tmp_path, capsys):
    size, cameras, grid = (64, 176), ["CAM_BACK", "CAM_FRONT"], BevGrid(x=(0, 40, 1), y=(-10, 10, 0.5))
    chosen = f"--decode scaled --image-size 64 176 --cameras {' '.join(cameras)} --x 0 40 1 --y -10 10 0.5"
    main(f"--root {tree} --out {tmp_path} {chosen}".split())
    assert "2 items of the split val" in capsys.readouterr().out
    whole = NuScenesBev(str(tree), "val", image_size=size, decode="scaled")[1]
    for packed in (None, str(tmp_path)):
        item = NuScenesBev(str(tree), "val", cameras, size, grid, "scaled", packed)[1]
        assert item["images"].shape == (2, 3, 64, 176) and item["target"].shape == (2, 40, 40)
        for name in ("images", "intrinsics", "camera_to_ego"):
            assert torch.equal(item[name], whole[name][[SIX.index(camera) for camera in cameras]])
        finer = whole["target"][1, 100:180:2, 80:120]
        assert 0 < (finer - item["target"][1]).abs().mean() < 0.1


@pytest.mark.parametrize("packed", [False, True])
def test_a_data_loader_collates_items_and_workers_can_be_sent_the_dataset(tree, tmp_path, packed):
    if packed:
        pack_split(str(tree), tmp_path, Wanted("val", decode="scaled"))
    data = NuScenesBev(str(tree), "val", decode="scaled", packed=str(tmp_path) if packed else None)
    data = pickle.loads(pickle.dumps(data))
    (batch,) = DataLoader(data, batch_size=2)
    assert batch["images"].shape == (2, 6, 3, 128, 352)
    assert batch["rig"].tolist() == [1, 1]
    assert torch.equal(batch["target"][1], data[1]["target"])
