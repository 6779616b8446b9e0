"""Our side of the comparison with NeMo: trains the nest recipe by a config and overrides, with the meter on.

python bench/nest_ours.py CONFIG-NAME WARMUP STEPS THREADS [override ...]
"""

from __future__ import annotations

import sys

import torch
from hydra import compose, initialize_config_module

from hotlap_recipes.nest.settings import check
from hotlap_recipes.nest.train import build
from nest_meter import Meter


def main(name: str, warmup: str, steps: str, threads: str, *overrides: str) -> None:
    torch.set_num_threads(int(threads))
    with initialize_config_module("hotlap_recipes.nest.configs", version_base=None):
        config = compose(name, list(overrides))
    check(config)
    trainer, module, data = build(config)
    trainer.callbacks.append(Meter(int(warmup), int(steps), config.model.sample_rate))
    trainer.fit(module, datamodule=data)


if __name__ == "__main__":
    main(*sys.argv[1:])
