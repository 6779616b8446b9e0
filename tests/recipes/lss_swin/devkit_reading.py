"""Opens a tree with the official nuscenes-devkit, unpatched, and stores what it reads. Run by a Python that has it.

python devkit_reading.py ROOT OUT.npz
"""

from __future__ import annotations

import sys

import numpy as np
from nuscenes.map_expansion.map_api import NuScenesMap
from nuscenes.nuscenes import NuScenes
from nuscenes.utils.data_classes import LidarPointCloud
from nuscenes.utils.geometry_utils import BoxVisibility, view_points
from nuscenes.utils.splits import create_splits_scenes
from pyquaternion import Quaternion


def main(root: str, out: str) -> None:
    tree = NuScenes("v1.0-mini", root, verbose=False)
    found = {}
    for split in ("train", "val"):
        names = create_splits_scenes()[f"mini_{split}"]
        scenes = {scene["name"]: scene for scene in tree.scene}
        tokens = [token for name in names if name in scenes for token in samples_of(tree, scenes[name])]
        found[f"{split}_tokens"] = np.array(tokens)
        found[f"{split}_drivable"] = np.stack([drivable(tree, root, token) for token in tokens])
        found[f"{split}_vehicles"] = np.array([vehicles(tree, token) for token in tokens])
    found["boxes_seen"] = np.array([boxes_in_front(tree, sample) for sample in tree.sample])
    found["lidar_points"] = np.array([lidar_points(tree, sample) for sample in tree.sample])
    found["on_mask"] = np.array([on_mask(tree, sample) for sample in tree.sample])
    np.savez(out, **found)


def samples_of(tree, scene):
    token = scene["first_sample_token"]
    while token:
        yield token
        token = tree.get("sample", token)["next"]


def pose_of(tree, sample):
    data = tree.get("sample_data", sample["data"]["LIDAR_TOP"])
    pose = tree.get("ego_pose", data["ego_pose_token"])
    return pose["translation"], Quaternion(pose["rotation"]).yaw_pitch_roll[0]


def log_of(tree, sample):
    return tree.get("log", tree.get("scene", sample["scene_token"])["log_token"])


def drivable(tree, root, token):
    """(200, 200), x ahead and y to the left, as the devkit draws it around the car."""
    sample = tree.get("sample", token)
    (x, y, _), yaw = pose_of(tree, sample)
    streets = NuScenesMap(root, log_of(tree, sample)["location"])
    mask = streets.get_map_mask((x, y, 100, 100), np.degrees(yaw), ["drivable_area"], (200, 200))
    return mask[0].T


def vehicles(tree, token):
    """How many cells of half a metre the boxes of vehicles cover within 50 m, by their area."""
    sample = tree.get("sample", token)
    (x, y, _), _ = pose_of(tree, sample)
    boxes = [tree.get("sample_annotation", each) for each in sample["anns"]]
    near = [box for box in boxes if np.hypot(box["translation"][0] - x, box["translation"][1] - y) < 47]
    return sum(
        box["size"][0] * box["size"][1] * 4 for box in near if box["category_name"].startswith("vehicle.")
    )


def boxes_in_front(tree, sample):
    _, boxes, intrinsics = tree.get_sample_data(sample["data"]["CAM_FRONT"], box_vis_level=BoxVisibility.ANY)
    centres = [view_points(box.center[:, None], intrinsics, normalize=True)[:2, 0] for box in boxes]
    return sum(bool(-300 < x < 1900 and 300 < y < 900) for x, y in centres)


def lidar_points(tree, sample):
    cloud, _ = LidarPointCloud.from_file_multisweep(tree, sample, "LIDAR_TOP", "LIDAR_TOP", nsweeps=2)
    return cloud.points.shape[1]


def on_mask(tree, sample):
    (x, y, _), _ = pose_of(tree, sample)
    return bool(tree.get("map", log_of(tree, sample)["map_token"])["mask"].is_on_mask(x, y)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
