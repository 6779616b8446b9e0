"""Render a drive through towns that do not exist and write it as nuScenes v1.0-mini, which the official devkit opens.

Thirteen tables, six JPEG cameras of 900 x 1600, a lidar, map masks and vector maps, and the scene names of the official
split. The scenes for validation are filmed in quarters that no scene for training has seen.

    python -m hotlap_recipes.lss_swin.make_nuscenes --out data/nuscenes
    python -m hotlap_recipes.lss_swin.make_nuscenes --out small --samples 4 --scenes scene-0061 scene-0103
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

import cv2

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.splits import MINI
from hotlap_recipes.lss_swin.town.film import WHERE, Shot, film
from hotlap_recipes.lss_swin.town.ground import prior_mask, vector_map
from hotlap_recipes.lss_swin.town.records import LIDAR, TABLES, Tables, mask_file, shared_rows
from hotlap_recipes.lss_swin.town.streets import town_of

VERSION = "v1.0-mini"


def write_tree(
    root: Path, scenes: Sequence[str] = tuple(WHERE), samples: int = 40, seed: int = 0, workers: int = 1
) -> None:
    """Write the tree. The tables come last, so that one cut off is no tree yet."""
    if (root / VERSION).exists():
        raise FileExistsError(17, "exists", str(root / VERSION))
    for channel in (*SIX, LIDAR):
        (root / "samples" / channel).mkdir(parents=True, exist_ok=True)
    (root / "sweeps").mkdir(exist_ok=True)
    locations = sorted({WHERE[name] for name in scenes})
    _write_maps(root, locations)
    filmed = _film_all([Shot(name, samples, seed) for name in scenes], root, workers)
    tables = {name: list(chain.from_iterable(scene[name] for scene in filmed)) for name in TABLES}
    tables |= shared_rows(locations, tables["log"], (*SIX, LIDAR))
    _write_tables(root, tables)


def _film_all(shots: list[Shot], root: Path, workers: int) -> list[Tables]:
    if workers == 1:
        return list(map(partial(film, root=root), shots))
    # One thread of OpenCV in each: its own threads only wait for each other where all cores are busy.
    with ProcessPoolExecutor(workers, get_context("spawn"), cv2.setNumThreads, (1,)) as pool:
        return list(pool.map(partial(film, root=root), shots))


def _write_maps(root: Path, locations: Iterable[str]) -> None:
    (root / "maps" / "expansion").mkdir(parents=True, exist_ok=True)
    for location in locations:
        town = town_of(location)
        text = json.dumps(vector_map(town))
        (root / "maps" / "expansion" / f"{location}.json").write_text(text, encoding="utf-8")
        _, content = cv2.imencode(".png", prior_mask(town))
        (root / mask_file(location)).write_bytes(content.tobytes())


def _write_tables(root: Path, tables: Tables) -> None:
    draft = root / f".{VERSION}.draft"
    draft.mkdir(exist_ok=True)
    for name in TABLES:
        (draft / f"{name}.json").write_text(json.dumps(tables[name], indent=0), encoding="utf-8")
    draft.rename(root / VERSION)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the tree")
    parser.add_argument(
        "--samples", type=int, default=40, help="key frames in each scene, two a second (default 40)"
    )
    parser.add_argument(
        "--scenes",
        nargs="+",
        default=list(WHERE),
        choices=list(WHERE),
        metavar="NAME",
        help="scenes (default: all ten)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    options = parser.parse_args(arguments)
    if options.samples < 1 or options.workers < 1:
        parser.error(f"--samples {options.samples} --workers {options.workers}: take at least 1 of each.")
    try:
        write_tree(options.out, options.scenes, options.samples, options.seed, options.workers)
    except FileExistsError as error:
        parser.error(f"{error.filename} exists. Remove it, or choose another --out.")
    counts = {split: options.samples * len(set(names) & set(options.scenes)) for split, names in MINI.items()}
    print(
        f"wrote {counts['train']} key frames for training and {counts['val']} for validation to {options.out}"
    )


if __name__ == "__main__":
    main()
