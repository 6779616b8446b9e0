"""The nest recipe beside NeMo 3.0.0: the same speech, model and threads, runs in turn, each in a fresh process.

python -m hotlap_recipes.nest.make_data --out speech
python bench/nest_vs_nemo.py --nemo-python /path/to/python --data speech [--plan plan.yaml] [--rounds 3]

NeMo has to have a Python of its own: pip install "nemo_toolkit[core,common-only,asr-only]==3.0.0" torch==2.13.0.
Our configs train one whole epoch a run, so that all meet the same clips: long ones cost more for each second of sound.
NeMo, which is slower, makes `--steps` steps. `--plan` adds the fast config under a plan that `hotlap tune` wrote for
it, `--naive-plan` the naive one under its own (`bench/nest_hotlap.py DATA naive --keep FILE`).
`--store FILE` keeps the figures of every run and adds to those that it holds, so that rounds can be measured in several
sittings. `--only a,b` leaves the others out; without NeMo among them its Python is not needed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

import interleave
from hotlap_recipes.nest.export import nemo_config
from interleave import BENCH, PYTHON, Variant, against, host_line
from nest_alignment import config_of

interleave.PATIENCE_S = 240  # NeMo's steps take seconds each
BATCH, WORKERS, WARMUP = 8, 2, 2
NAIVE_BATCH = 2
TITLES = {
    "nemo": "NeMo 3.0.0, batch 8",
    "naive": "naive config, batch 2",
    "fast": "fast config, batch 8",
    "fast16": "fast config, batch 16",
    "tuned": "fast config, batch 8, tuned",
    "found": "naive config, tuned",
}
RATIOS = (
    ("nemo", "fast"),
    ("naive", "fast"),
    ("fast", "fast16"),
    ("fast", "tuned"),
    ("nemo", "naive"),
    ("naive", "found"),
    ("fast", "found"),
)
ROWS = (
    ("sound_per_s", "s of sound/s", "{:.2f}"),
    ("clips_per_s", "clips/s", "{:.2f}"),
    ("step_ms", "ms a step", "{:.0f}"),
    ("data_ms", "of it waiting for data", "{:.1f}"),
    ("padding", "padding", "{:.1%}"),
    ("busy", "CPU used, without workers", "{:.0%}"),
    ("memory_mb", "memory, MB", "{:.0f}"),
)


def variants(options: argparse.Namespace, folder: Path, seed: int) -> list[Variant]:
    data = options.data.resolve()
    manifests = [
        f"model.train_ds.manifest_filepath={data}/train_manifest.json",
        f"model.train_ds.noise_manifest={data}/noise_manifest.json",
        f"size={options.size}",
        f"seed={seed}",
    ]
    quiet = ["trainer.enable_progress_bar=false", "exp_manager.create_checkpoint_callback=false"]
    quiet += [
        "trainer.accelerator=cpu",
        f"exp_manager.exp_dir={folder}",
        "exp_manager.resume_if_exists=false",
    ]
    name, workers = "nest_fast-conformer_fast", [f"model.train_ds.num_workers={WORKERS}"]

    def ours(title: str, config_name: str, overrides: list[str], steps: int, *before: str) -> Variant:
        script = [str(BENCH / "nest_ours.py"), config_name, str(WARMUP), str(steps), str(options.threads)]
        return Variant(title, [PYTHON, *before, *script, *manifests, *quiet, *overrides])

    config = config_of([f"size={options.size}"])
    clips = count(data / "train_manifest.json", config.model.train_ds)
    asked = {
        "seed": seed,
        "threads": options.threads,
        "warmup": WARMUP,
        "steps": options.steps,
        "log_every_n_steps": 10,
        "model": nemo_config(config.model) | {"train_ds": _nemo_data(data)},
    }
    (folder / "nemo.json").write_text(json.dumps(asked))
    nemo = [options.nemo_python, str(BENCH / "nest_nemo.py"), "train", str(folder / "nemo.json")]
    found = [
        Variant("nemo", nemo),
        ours("naive", "nest_fast-conformer", [], clips // NAIVE_BATCH - WARMUP),
        ours("fast", name, [f"model.train_ds.batch_size={BATCH}", *workers], clips // BATCH - WARMUP),
        ours("fast16", name, [f"model.train_ds.batch_size={2 * BATCH}", *workers], clips // 16 - WARMUP),
    ]
    if options.plan:
        found.append(ours("tuned", name, workers, clips // BATCH - WARMUP, *_under(options.plan)))
    if options.naive_plan:
        settings = yaml.safe_load(options.naive_plan.read_text(encoding="utf-8"))["settings"]
        steps = clips // settings.get("batch-size", NAIVE_BATCH) - WARMUP
        found.append(ours("found", "nest_fast-conformer", [], steps, *_under(options.naive_plan)))
    return [each for each in found if not options.only or each.name in options.only.split(",")]


def _under(plan: Path) -> list[str]:
    return ["-m", "hotlap", "run", "--plan", str(plan.resolve())]


def count(manifest: Path, config: Any) -> int:
    """Clips that are trained on."""
    lines = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    return sum(config.min_duration <= each["duration"] <= config.max_duration for each in lines)


def _nemo_data(data: Path) -> dict[str, object]:
    return {
        "manifest_filepath": str(data / "train_manifest.json"),
        "noise_manifest": str(data / "noise_manifest.json"),
        "sample_rate": 16000,
        "batch_size": BATCH,
        "shuffle": True,
        "num_workers": WORKERS,
        "pin_memory": False,
        "max_duration": 60.0,
        "min_duration": 1.0,
        "drop_last": True,
        "batch_augmentor": dict(config_of([]).model.train_ds.batch_augmentor),
    }


def table(figures: dict[str, list[dict[str, float]]]) -> None:
    names = [name for name in TITLES if figures.get(name)]
    print("| | " + " | ".join(TITLES[name] for name in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for key, title, form in ROWS:
        means = [sum(run[key] for run in figures[name]) / len(figures[name]) for name in names]
        print(f"| {title} | " + " | ".join(form.format(mean) for mean in means) + " |")
    for base, other in RATIOS:
        found = against(figures, base, other, "sound_per_s")
        if found is not None:
            runs = f"{len(figures[base])} and {len(figures[other])} runs"
            between = f"between {found.low:.2f} and {found.high:.2f}"
            print(f"{TITLES[other]} over {TITLES[base]}: {found.value:.2f} times, {between} ({runs})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nemo-python", default="")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", default="small")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--naive-plan", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if not options.nemo_python and "nemo" in (options.only or "nemo").split(","):
        parser.error("NeMo's Python is missing: --nemo-python PATH, or leave NeMo out with --only")
    print(host_line())
    figures: dict[str, list[dict[str, float]]] = {}
    if options.store and options.store.exists():
        figures = json.loads(options.store.read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(options.rounds):
            # Another seed each time: which clips meet in a batch decides how much of it is padding.
            seed = max(map(len, figures.values()), default=0)
            found = variants(options, folder, seed)
            ordered = found if seed % 2 == 0 else found[::-1]
            for variant, runs in interleave.interleave(ordered, 1, folder).items():
                figures.setdefault(variant, []).extend(runs)
            print(f"round {turn + 1} of {options.rounds} is done", flush=True)
    if options.store:
        options.store.write_text(json.dumps(figures, indent=1))
    print(
        f"size {options.size}, {options.threads} threads, NeMo {options.steps} steps a run, the others an epoch"
    )
    table(figures)


if __name__ == "__main__":
    main()
