"""Mean intersection over union of the drawn maps, by torchmetrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.evaluator import BaseMetric
from torchmetrics.classification import MultilabelJaccardIndex

from hotlap_recipes.lss_swin import TARGETS

Drawn = tuple[torch.Tensor, torch.Tensor]  # what was drawn and what is there, both bool (classes, X, Y)


class MeanIoU(BaseMetric):  # type: ignore[misc]
    """With `pre_eval`, each batch is counted as it comes; without, all maps are kept and counted at the end."""

    default_prefix = ""  # none: the names stand for themselves

    def __init__(self, pre_eval: bool = True) -> None:
        super().__init__()
        self.pre_eval = pre_eval

    def process(self, data_batch: Any, data_samples: Sequence[Drawn]) -> None:
        if self.pre_eval:
            self.results.append(counted(data_samples))
        else:
            self.results += [(drawn.cpu(), target.cpu()) for drawn, target in data_samples]

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        # Not synchronised by torchmetrics: mmengine has gathered the results of all ranks for its first one.
        total = results[0] if self.pre_eval else counted(results)
        for each in results[1:] if self.pre_eval else ():
            total.merge_state(each)
        by_class = {f"IoU.{name}": float(value) for name, value in zip(TARGETS, total.compute(), strict=True)}
        return {"mIoU": sum(by_class.values()) / len(by_class), **by_class}


def counted(maps: Sequence[Drawn]) -> MultilabelJaccardIndex:
    """A metric on the CPU that has seen some maps."""
    drawn, target = (torch.stack(each).long() for each in zip(*maps, strict=True))
    index = MultilabelJaccardIndex(
        len(TARGETS), average=None, validate_args=False, sync_on_compute=False, distributed_available_fn=None
    ).to(drawn.device)
    index.update(drawn, target)
    return index.cpu()
