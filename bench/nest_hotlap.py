"""What hotlap says of the nest recipe, and what it finds for it: the commands behind docs/recipes/nest.md.

python -m hotlap_recipes.nest.make_data --out speech
python bench/nest_hotlap.py speech profile    causes of the naive config, small and tiny
python bench/nest_hotlap.py speech naive      tune on the naive config, 30 minutes
python bench/nest_hotlap.py speech fast       tune on the fast config, 12 minutes
python bench/nest_hotlap.py speech settings   what settings chosen by hand bring to the naive config, 6 minutes
python bench/nest_hotlap.py speech code       what the fast config loses without its model's code, 5 minutes

`--keep plan.yaml` keeps the plan that was found, for `bench/nest_vs_nemo.py --plan`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from interleave import PYTHON, host_line

TRAIN = ("-m", "hotlap_recipes.nest.train")
FAST = (*TRAIN, "--config-name", "nest_fast-conformer_fast")
# Whatever of the fast config is a setting, and float32 for the quantizer. The rest of it is the model's code.
BY_HAND = {
    "bucketing": "rows",
    "batch-size": 8,
    "scale-lr": "sqrt",
    "num-workers": 2,
    "fused-optimizer": "fused",
    "keep-memory": True,
    "precision": "bf16-mixed",
    "single-precision": True,
}
# Which no setting can bring to the naive config: the quantizer's search, and which frames the decoder sees.
SEARCH, FRAMES = "model.quantizer.search=distance", "model.loss.frames=all"
NAIVE_CODE = ((SEARCH,), (FRAMES,), (SEARCH, FRAMES))
ASKED = {
    "profile": [(("profile", "--steps", "60"), TRAIN, size) for size in ("small", "tiny")],
    "naive": [(("tune", "--budget", "30m", "--allow", "rounding,statistical"), TRAIN, "small")],
    "fast": [(("tune", "--budget", "12m", "--keep-batch", "--allow", "rounding,statistical"), FAST, "small")],
    "settings": [(("compare", "--budget", "6m", "none", "by_hand.yaml", "--"), TRAIN, "small")],
    "code": [(("compare", "--budget", "5m", "--"), FAST, "small")],
}


def overrides(data: Path, size: str) -> list[str]:
    return [
        f"size={size}",
        f"model.train_ds.manifest_filepath={data}/train_manifest.json",
        f"model.train_ds.noise_manifest={data}/noise_manifest.json",
        "trainer.accelerator=cpu",
        "trainer.enable_progress_bar=false",
        "trainer.max_epochs=100",
        "exp_manager.create_checkpoint_callback=false",
        "exp_manager.resume_if_exists=false",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("part", choices=list(ASKED))
    parser.add_argument("--budget", help="of a search, in the place of its usual one")
    parser.add_argument("--keep", type=Path, help="where to copy the plan to")
    options = parser.parse_args()
    print(host_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plan = {"hotlap": 1, "settings": BY_HAND}
        (Path(folder) / "by_hand.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
        for asked, train, size in ASKED[options.part]:
            given = list(asked)
            if options.budget:
                given[given.index("--budget") + 1] = options.budget
            command = [*train, *overrides(options.data.resolve(), size)]
            words = [*given, *command]
            if options.part == "code":
                words += [word for each in NAIVE_CODE for word in ("--", *command, *each)]
            subprocess.run([PYTHON, "-m", "hotlap", *words], cwd=folder, check=True)
            if options.keep:
                shutil.copy(Path(folder) / ".hotlap" / "tune" / "train" / "plan.yaml", options.keep)


if __name__ == "__main__":
    main()
