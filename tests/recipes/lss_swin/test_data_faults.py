"""What is wrong with a tree, an image or a packed folder is said with the name of the file or key."""

from __future__ import annotations

import json
import pickle
import re
import shutil

import pytest
from torch._utils import ExceptionWrapper

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.dataset import NuScenesBev
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.make_nuscenes import VERSION
from hotlap_recipes.lss_swin.pack import pack_split
from hotlap_recipes.lss_swin.sources import Wanted
from hotlap_recipes.lss_swin.tables import Tables


def a_picture(root, scene="scene-0553"):
    return next((root / "samples" / "CAM_BACK").glob(f"*{scene}*.jpg"))


def refused(message, call, *arguments, **options):
    """The message names the thing and ends in a remedy."""
    with pytest.raises(BadInputError, match=message) as told:
        call(*arguments, **options)
    assert "\n  -> " in str(told.value)


def test_a_missing_image_is_named_before_the_training_begins(own_tree):
    path = a_picture(own_tree)
    path.unlink()
    refused(re.escape(f"{path} is missing"), NuScenesBev, str(own_tree), "train")
    assert len(NuScenesBev(str(own_tree), "val")) == 2, "the other split does not need it"
    assert len(NuScenesBev(str(own_tree), "train", ["CAM_FRONT"])) == 4, "nor do other cameras"


@pytest.mark.parametrize("decode", ["full", "scaled"])
def test_a_damaged_image_is_named(own_tree, decode):
    path = a_picture(own_tree)
    whole = path.read_bytes()
    data = NuScenesBev(str(own_tree), "train", ["CAM_BACK"], decode=decode)
    for damaged in (whole[: len(whole) // 2], b"", b"<html>not found</html>"):
        path.write_bytes(damaged)
        refused(re.escape(f"the image {path} cannot be decoded"), list, data)
    path.write_bytes(whole)
    assert len(list(data)) == 4


def test_the_error_comes_whole_out_of_a_worker_of_a_data_loader():
    """Which pickles it, or raises its type anew with a text of its own."""
    error = BadInputError("the image a.jpg cannot be decoded.", "copy the file again.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    again = ExceptionWrapper((type(error), error, None), where="in DataLoader worker process 0")
    with pytest.raises(BadInputError, match=r"(?s)worker process 0.*a\.jpg.*copy the file again"):
        again.reraise()


@pytest.mark.parametrize(
    ("table", "key", "other"),
    [
        ("sample_data", "calibrated_sensor_token", "calibrated_sensor"),
        ("sample_data", "ego_pose_token", "ego_pose"),
        ("sample", "scene_token", "scene"),
        ("scene", "log_token", "log"),
        ("sample_annotation", "instance_token", "instance"),
        ("instance", "category_token", "category"),
    ],
)
def test_a_dangling_token_is_named_with_table_row_and_key(own_tree, edit_table, table, key, other):
    row = {}
    path = edit_table(
        own_tree, table, lambda rows: (rows[-1].update({key: "0badf00d"}), row.update(rows[-1]))
    )
    message = f"{path}: row {row['token']} has the {key} '0badf00d', which {other}.json does not hold"
    refused(re.escape(message), Tables, own_tree)


def test_a_row_that_was_removed_leaves_tokens_dangling(own_tree, edit_table):
    edit_table(own_tree, "calibrated_sensor", lambda rows: rows.pop(3))
    refused("which calibrated_sensor.json does not hold", NuScenesBev, str(own_tree), "train")


def test_a_missing_key_is_named(own_tree, edit_table):
    path = edit_table(own_tree, "sample", lambda rows: rows[2].pop("scene_token"))
    refused(rf"{re.escape(str(path))}: row \w+ has no 'scene_token'", Tables, own_tree)


@pytest.mark.parametrize("content", ["[{", '{"token": 1}', '[{"name": "without a token"}]'])
def test_a_table_that_is_none_is_named(own_tree, content):
    path = own_tree / VERSION / "ego_pose.json"
    path.write_text(content)
    refused(re.escape(str(path)), Tables, own_tree)


def test_a_missing_table_is_named(own_tree):
    (own_tree / VERSION / "instance.json").unlink()
    refused(r"instance\.json cannot be read", Tables, own_tree)


def test_a_folder_without_tables_is_told_how_to_make_some(tmp_path):
    refused(rf"(?s)no nuScenes tables.*make_nuscenes --out {tmp_path}", NuScenesBev, str(tmp_path), "train")


def test_two_versions_in_one_root_are_refused(own_tree):
    shutil.copytree(own_tree / VERSION, own_tree / "v1.0-test")
    refused("several versions: v1.0-mini, v1.0-test", Tables, own_tree)


def test_a_camera_that_was_not_recorded_is_named_with_those_that_were(tree):
    refused("no key frame of 'CAM_ROOF', only of CAM_BACK,", NuScenesBev, str(tree), "train", ["CAM_ROOF"])


def test_a_split_without_scenes_is_refused(own_tree, edit_table):
    edit_table(own_tree, "scene", lambda rows: [row.update(name=f"x{row['name']}") for row in rows])
    refused("no scene of the split 'val'; its scenes: xscene-0061", NuScenesBev, str(own_tree), "val")


def test_splits_json_splits_other_versions(own_tree):
    folder = (own_tree / VERSION).rename(own_tree / "v1.0-custom")
    refused("the split of .*v1.0-custom is not known", NuScenesBev, str(own_tree), "val")
    (folder / "splits.json").write_text(json.dumps({"val": ["scene-0061"]}))
    assert len(NuScenesBev(str(own_tree), "val")) == 2
    refused("splits.json has no 'train'", NuScenesBev, str(own_tree), "train")


def test_a_misspelt_choice_is_refused(tree):
    refused("decode is 'quick'", NuScenesBev, str(tree), "train", decode="quick")
    refused("split is 'mini_train'", NuScenesBev, str(tree), "mini_train")


def test_packed_items_of_another_kind_are_refused(tree, tmp_path):
    refused(
        "no packed items in .*train.*\n.*lss_swin.pack --root",
        NuScenesBev,
        str(tree),
        "train",
        packed=str(tmp_path),
    )
    pack_split(str(tree), tmp_path, Wanted("val", ("CAM_FRONT",), (64, 176), decode="scaled"))
    right = {"cameras": ("CAM_FRONT",), "image_size": (64, 176), "decode": "scaled", "packed": str(tmp_path)}
    assert len(NuScenesBev(str(tree), "val", **right)) == 2
    for wrong, message in (
        ({"decode": "full"}, "decode scaled, not full"),
        ({"image_size": (128, 352)}, r"image_size \[64, 176\], not \[128, 352\]"),
        ({"cameras": ("CAM_BACK",)}, "cameras"),
        (
            {"grid": BevGrid(x=(0, 50, 0.5))},
            "(?s)grid.*--image-size 64 176 --cameras CAM_FRONT --x 0 50 0.5$",
        ),
    ):
        refused(message, NuScenesBev, str(tree), "val", **(right | wrong))
