"""Train camera segmentation seen from above, the mm way: a configuration, options over it, mmengine's Runner.

    python -m hotlap_recipes.lss_swin.train configs/lss_swin_nuscenes.py --work-dir runs/x --gpu-ids 0 \\
        --options runner.max_iters=100

Exit codes: 0 trained, 2 bad input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import DictAction
from mmengine.runner import CheckpointLoader, Runner, set_random_seed

from hotlap_recipes.lss_swin import BadInputError
from hotlap_recipes.lss_swin.config import find, load
from hotlap_recipes.lss_swin.translate import runner_arguments


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("config", help="a Python configuration, of yours or of this recipe: configs/lss_swin_nuscenes.py")
    add("--work-dir", help="where logs and checkpoints go (default work_dirs/<name of the configuration>)")
    add("--gpu-ids", type=int, nargs="+", help="the GPU to train on; without one it is the processor")
    add("--options", nargs="+", action=DictAction, help="over the configuration: runner.max_iters=100")
    add("--resume-from", metavar="CKPT", help="go on from this checkpoint, with its iteration and optimizer")
    add("--no-validate", action="store_true", help="do not evaluate while training")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        train(parse(arguments))
    except BadInputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def train(options: argparse.Namespace) -> None:
    config = load(options.config, options.options)
    choose_gpu(options.gpu_ids)
    if options.resume_from:
        config.resume_from = options.resume_from
    for key in ("resume_from", "load_from"):
        require_checkpoint(key, config.get(key))
    work_dir = options.work_dir or config.get("work_dir") or f"work_dirs/{find(options.config).stem}"
    CheckpointLoader.register_scheme("", read_checkpoint, force=True)
    set_random_seed(config.get("seed"))  # the Runner does so after the network has drawn its weights
    Runner(**runner_arguments(config, work_dir, not options.no_validate, say)).train()


def read_checkpoint(filename: str, map_location: Any = None, **_: Any) -> Any:
    """mmengine saves its log with the weights, which torch from 2.6 on reads only when told that it is trusted."""
    return torch.load(filename, map_location=map_location, weights_only=False)


def say(message: str) -> None:
    print(message, flush=True)


def choose_gpu(ids: Sequence[int] | None) -> None:
    """Before anything asks for CUDA: only the chosen GPU is seen."""
    if ids and len(ids) > 1:
        raise BadInputError(
            f"--gpu-ids {' '.join(map(str, ids))} are {len(ids)} GPUs for one process.",
            f"start one process for each: torchrun --nproc_per_node {len(ids)} -m hotlap_recipes.lss_swin.train.",
        )
    if not torch.cuda.is_available():
        if "LOCAL_RANK" in os.environ:
            raise BadInputError(
                "torchrun started this process, and there is no GPU here: mmengine wants one for each process.",
                "start it with python.",
            )
        if ids:
            say(f"there is no GPU here: --gpu-ids {ids[0]} is not used, the processor trains.")
        return
    if ids and ids[0] >= torch.cuda.device_count():
        raise BadInputError(
            f"--gpu-ids is {ids[0]}, and this machine has {torch.cuda.device_count()} GPUs.",
            "count from 0: --gpu-ids 0.",
        )
    if ids:
        torch.cuda.set_device(ids[0])


def require_checkpoint(key: str, path: str | None) -> None:
    if path and not Path(path).is_file():
        raise BadInputError(
            f"{key} is {path}, and there is no such file.", "checkpoints are in --work-dir: iter_N.pth."
        )


if __name__ == "__main__":
    sys.exit(main())
