"""Weights & Biases: figures in the summary and by step, the report as HTML.

Where
    `wandb=PROJECT` or `wandb=ENTITY/PROJECT`, or what wandb goes by (`WANDB_PROJECT`, else `hotlap`).
    `WANDB_MODE=offline` keeps the run in the run folder; `wandb sync` uploads it later.
"""

from __future__ import annotations

import os
from pathlib import Path

from hotlap.ports.exporter import Exporter, Parcel


class Wandb(Exporter):
    id = "wandb"
    needs = ("wandb",)
    extra = "wandb"

    def send(self, parcel: Parcel, where: str) -> str:
        import wandb

        entity, _, project = where.rpartition("/")
        run = wandb.init(
            entity=entity or None,
            project=project or os.environ.get("WANDB_PROJECT", "hotlap"),
            name=parcel.name,
            job_type="hotlap",
            config=dict(parcel.tags),
            dir=parcel.folder,
            settings=wandb.Settings(
                console="off", x_disable_stats=True, x_disable_meta=True, save_code=False
            ),
        )
        run.define_metric("hotlap/at_step")
        run.define_metric("hotlap/by_step/*", step_metric="hotlap/at_step")
        at = parcel.series[0].steps if parcel.series else ()
        for index, step in enumerate(at):
            row = {each.path: each.values[index] for each in parcel.series}
            run.log({"hotlap/at_step": step, **row})
        if parcel.report:
            run.log(
                {"hotlap/report": wandb.Html(Path(parcel.report).read_text(encoding="utf-8"), inject=False)}
            )
        run.summary.update({each.path: each.value for each in parcel.metrics})
        run.finish()
        return str(run.url or run.dir)
