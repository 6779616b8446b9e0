"""The rendered tree: complete, linked, the same for the same seed, and a drive that shows what a model has learned."""

from __future__ import annotations

import json
from collections import Counter

import cv2
import numpy as np
import pytest
from PIL import Image

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin import make_nuscenes as maker
from hotlap_recipes.lss_swin.make_nuscenes import VERSION, main, write_tree
from hotlap_recipes.lss_swin.splits import MINI
from hotlap_recipes.lss_swin.town.drive import drive_through
from hotlap_recipes.lss_swin.town.film import WHERE
from hotlap_recipes.lss_swin.town.ground import prior_mask
from hotlap_recipes.lss_swin.town.records import TABLES
from hotlap_recipes.lss_swin.town.streets import LOCATIONS, layers_of, town_of
from hotlap_recipes.lss_swin.town.traffic import traffic_of

VIEW = 50 * np.sqrt(2)
"""From the car to a corner of its grid, in metres."""


@pytest.fixture(scope="module")
def tables(tree):
    return {path.stem: json.loads(path.read_text()) for path in (tree / VERSION).glob("*.json")}


@pytest.fixture(scope="module")
def drives():
    """Long drives through every town, by town and split."""
    return {
        (place, split): drive_through(town_of(place), split, 200, np.random.default_rng(seed))
        for place in LOCATIONS
        for seed, split in enumerate(("train", "val"))
    }


def test_all_tables_are_there_and_every_token_is_known(tables):
    assert set(tables) == set(TABLES) and len(TABLES) == 13 and all(tables.values())
    tokens = {name: {row["token"] for row in rows} for name, rows in tables.items()}
    assert all(len(tokens[name]) == len(rows) for name, rows in tables.items()), "no token is used twice"
    links = Counter()
    for name, rows in tables.items():
        for row in rows:
            for key, value in row.items():
                if key.endswith(("_token", "_tokens")) or key in ("prev", "next"):
                    other = linked_table(name, key, tables)
                    for token in value if isinstance(value, list) else [value]:
                        assert token in tokens[other] or (token == "" and key in ("prev", "next")), (
                            name,
                            key,
                        )
                        links[name, key] += 1
    assert len(links) == 22, "every kind of link that nuScenes has"


def linked_table(name, key, tables):
    if key in ("prev", "next"):
        return name
    key = key.removesuffix("s").removesuffix("_token").removeprefix("first_").removeprefix("last_")
    return "sample_annotation" if key == "annotation" else key


def test_chains_run_from_the_first_to_the_last_in_the_order_of_time(tables):
    samples = {row["token"]: row for row in tables["sample"]}
    for scene in tables["scene"]:
        chain = [scene["first_sample_token"]]
        while samples[chain[-1]]["next"]:
            assert samples[samples[chain[-1]]["next"]]["prev"] == chain[-1]
            chain.append(samples[chain[-1]]["next"])
        assert chain[-1] == scene["last_sample_token"] and len(chain) == scene["nbr_samples"] == 2
        assert samples[chain[1]]["timestamp"] - samples[chain[0]]["timestamp"] == 500_000
    followed = {row["instance_token"]: 0 for row in tables["sample_annotation"]}
    for row in tables["sample_annotation"]:
        followed[row["instance_token"]] += 1
    assert followed == {row["token"]: row["nbr_annotations"] for row in tables["instance"]}


def test_every_file_is_what_its_row_says(tree, tables):
    channels = Counter(row["filename"].split("/")[1] for row in tables["sample_data"])
    assert channels == dict.fromkeys((*SIX, "LIDAR_TOP"), 6)
    for row in tables["sample_data"]:
        path = tree / row["filename"]
        if row["fileformat"] == "jpg":
            with Image.open(path) as picture:
                assert (
                    (picture.format, picture.size)
                    == ("JPEG", (1600, 900))
                    == ("JPEG", (row["width"], row["height"]))
                )
        else:
            points = np.fromfile(path, np.float32).reshape(-1, 5)
            assert len(points) > 10_000 and np.isfinite(points).all()
    for row in tables["map"]:
        mask = cv2.imread(str(tree / row["filename"]), cv2.IMREAD_GRAYSCALE)
        assert mask.shape == (3000, 5600) and set(np.unique(mask)) == {0, 255}


def test_the_same_scene_is_the_same_whichever_others_are_filmed_in_however_many_processes(
    tree, tmp_path, capsys
):
    words = f"--out {tmp_path / 'again'} --samples 2 --workers 2 --scenes scene-0103 scene-0061"
    main(words.split())
    assert "2 key frames for training and 2 for validation" in capsys.readouterr().out
    files = [path.relative_to(tmp_path / "again") for path in (tmp_path / "again" / "samples").rglob("*.*")]
    assert len(files) == 2 * 2 * 7
    assert all((tree / file).read_bytes() == (tmp_path / "again" / file).read_bytes() for file in files)

    write_tree(tmp_path / "other", ["scene-0103"], 1, seed=1)
    assert all(
        (tree / file).read_bytes() != (tmp_path / "other" / file).read_bytes()
        for file in files_of(tmp_path / "other")
    )


def files_of(root):
    return [path.relative_to(root) for path in (root / "samples").rglob("*.jpg")]


def test_a_tree_that_exists_is_left_alone(tree, capsys):
    before = (tree / VERSION).stat().st_mtime_ns
    with pytest.raises(SystemExit):
        main(["--out", str(tree), "--samples", "1"])
    assert f"{tree / VERSION} exists. Remove it, or choose another --out." in capsys.readouterr().err
    assert (tree / VERSION).stat().st_mtime_ns == before


def test_a_tree_that_was_cut_off_has_no_tables(tmp_path, monkeypatch):
    def cut_off(shot, root):
        raise KeyboardInterrupt

    monkeypatch.setattr(maker, "film", cut_off)
    with pytest.raises(KeyboardInterrupt):
        write_tree(tmp_path, ["scene-0103"], 1)
    assert not (tmp_path / VERSION).exists()


def test_scenes_are_those_of_the_official_split():
    assert set(MINI["train"]) | set(MINI["val"]) == set(WHERE) and not set(MINI["train"]) & set(MINI["val"])
    assert {WHERE[name] for name in MINI["train"]} == set(LOCATIONS)


def test_the_car_stays_on_the_street(drives):
    for (place, _), drive in drives.items():
        on_street = np.zeros_like(prior_mask(town_of(place)))
        for polygon in layers_of(town_of(place))["drivable_area"]:
            cv2.fillPoly(on_street, [np.round(polygon * 10).astype(np.int32)], 1)
        x, y = np.round(drive.position * 10).astype(int).T
        assert on_street[y, x].all()


def test_the_car_turns_and_moves_on(drives):
    for drive in drives.values():
        turned = np.abs(np.angle(np.exp(1j * np.diff(drive.yaw))))
        steps = np.hypot(*np.diff(drive.position, axis=0).T)
        assert (turned > np.radians(8)).mean() > 0.1, "it is often in a turn"
        assert turned.max() < np.radians(80) and 1 < steps.min() < steps.max() < 7
        quarters = Counter(np.round(drive.yaw / (np.pi / 2)).astype(int) % 4)
        assert len(quarters) == 4 and min(quarters.values()) > 5, "all four directions are driven"


def test_no_place_is_seen_in_both_splits(drives):
    for place in LOCATIONS:
        train, val = (drives[place, split].position for split in ("train", "val"))
        apart = np.hypot(*(train[:, None] - val[None]).T)
        assert apart.min() > 2 * VIEW


def test_nothing_drives_into_the_car(drives):
    place, split = LOCATIONS[0], "train"
    drive = drives[place, split]
    things = traffic_of(town_of(place), split, drive, np.random.default_rng(0))
    kinds = Counter(thing.category.split(".")[0] for thing in things)
    assert kinds["vehicle"] > 100 and kinds["human"] > 30 and kinds["movable_object"] > 5
    for thing in things:
        apart = np.hypot(*(thing.position - drive.position).T)[thing.present]
        assert not len(apart) or apart.min() > 1.5


@pytest.mark.parametrize("place", LOCATIONS[:2])
def test_offsets_are_to_the_right_and_yaws_point_along_the_street(place):
    town = town_of(place)
    for street in (town.columns[0], town.rows[0]):
        for onward in (1, -1):
            along = 100 + onward * np.linspace(0, 20, 41)
            middle, yaw = street.places(along, 0, onward)
            right, _ = street.places(along, 2, onward)
            step, aside = np.diff(middle, axis=0), (right - middle)[:-1]
            np.testing.assert_allclose(np.hypot(*aside.T), 2)
            assert (step[:, 0] * aside[:, 1] - step[:, 1] * aside[:, 0] < 0).all(), "clockwise of the way"
            np.testing.assert_allclose(
                np.angle(np.exp(1j * (np.arctan2(*step.T[::-1]) - yaw[:-1]))), 0, atol=0.02
            )
