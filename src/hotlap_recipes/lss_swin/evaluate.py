"""Has a checkpoint learnt to see? Its IoU beside that of one constant map, and with the images of other places.

    python -m hotlap_recipes.lss_swin.evaluate configs/lss_swin_nuscenes.py runs/x/iter_2000.pth --options data.root=DIR

A map that is the same for every frame already scores, as streets mostly lie ahead and behind. Whoever learns from
images scores more, and loses it when the images of another frame are shown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Literal

import torch
from mmengine.config import DictAction
from torch.utils.data import Dataset, default_collate

from hotlap_recipes.lss_swin import TARGETS, BadInputError
from hotlap_recipes.lss_swin.config import load
from hotlap_recipes.lss_swin.dataset import BevItem
from hotlap_recipes.lss_swin.metric import Drawn, MeanIoU
from hotlap_recipes.lss_swin.model import BevSegmentor
from hotlap_recipes.lss_swin.translate import build_dataset, build_model

Scores = dict[str, float]
THRESHOLDS = torch.linspace(0.05, 0.95, 19)


def constant_map(train: Dataset[BevItem]) -> torch.Tensor:
    """The one map that scores best on the training frames: cells set often enough, for each class by itself."""
    targets = torch.stack([train[index]["target"].bool() for index in range(len(train))])  # type: ignore[arg-type]
    often = targets.float().mean(0)
    best = []
    for channel, share in enumerate(often):
        scores = []
        for threshold in THRESHOLDS:
            drawn = (share >= threshold).expand(len(targets), -1, -1)
            both, either = (drawn & targets[:, channel]).sum(), (drawn | targets[:, channel]).sum()
            scores.append(float(both / either) if either else 0.0)
        best.append(share >= THRESHOLDS[max(range(len(scores)), key=scores.__getitem__)])
    return torch.stack(best)


def score(maps: Sequence[Drawn]) -> Scores:
    return MeanIoU(pre_eval=False).compute_metrics(list(maps))


def score_constant(drawn: torch.Tensor, data: Dataset[BevItem]) -> Scores:
    return score([(drawn, data[index]["target"].bool()) for index in range(len(data))])  # type: ignore[arg-type]


@torch.no_grad()
def score_model(model: BevSegmentor, data: Dataset[BevItem], swapped: bool = False, batch: int = 4) -> Scores:
    """With `swapped`, each frame is drawn from the images of the frame half the data set away."""
    model.eval()
    count, maps = len(data), []  # type: ignore[arg-type]
    for first in range(0, count, batch):
        frames: list[Any] = [data[index] for index in range(first, min(first + batch, count))]
        if swapped:
            others = [data[(index + count // 2) % count] for index in range(first, first + len(frames))]
            frames = [
                {**frame, "images": other["images"]} for frame, other in zip(frames, others, strict=True)
            ]
        maps += model.val_step(default_collate(frames))
    return score(maps)


def table(rows: dict[str, Scores]) -> str:
    names = ("mIoU", *(f"IoU.{name}" for name in TARGETS))
    lines = [f"{'':28}" + "".join(f"{name:>15}" for name in names)]
    lines += [
        f"{row:28}" + "".join(f"{scores[name]:15.3f}" for name in names) for row, scores in rows.items()
    ]
    return "\n".join(lines)


def evaluated(config: Any, checkpoint: str, split: Literal["train", "val"] = "val") -> dict[str, Scores]:
    model = build_model(config)
    model.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=False)["state_dict"])
    data = build_dataset(config, split)
    return {
        "one constant map": score_constant(constant_map(build_dataset(config, "train")), data),
        "trained": score_model(model, data),
        "trained, images swapped": score_model(model, data, swapped=True),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("checkpoint")
    parser.add_argument("--options", nargs="+", action=DictAction)
    options = parser.parse_args(arguments)
    try:
        print(table(evaluated(load(options.config, options.options), options.checkpoint)))
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
