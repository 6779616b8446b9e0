"""MLflow: metrics, tags, and the report as an artifact of a run.

Where
    `mlflow=URI` of the tracking server or store, or what MLflow itself goes by (`MLFLOW_TRACKING_URI`). The
    experiment is that of `MLFLOW_EXPERIMENT_NAME`, or `hotlap`.
"""

from __future__ import annotations

import os
import time

from hotlap.ports.exporter import Exporter, Parcel

_BATCH = 1000  # metrics of one request, as the server admits


class MLflow(Exporter):
    id = "mlflow"
    needs = ("mlflow",)
    extra = "mlflow"

    def send(self, parcel: Parcel, where: str) -> str:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        from mlflow.entities import Metric, RunTag
        from mlflow.tracking import MlflowClient

        client = MlflowClient(where or None)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "hotlap")
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known is not None else client.create_experiment(name)
        run = client.create_run(experiment, run_name=parcel.name).info.run_id
        now = int(time.time() * 1e3)
        metrics = [Metric(_name(each.path), each.value, now, 0) for each in parcel.metrics]
        for series in parcel.series:
            points = zip(series.steps, series.values, strict=True)
            metrics += [Metric(_name(series.path), value, now, step) for step, value in points]
        for first in range(0, len(metrics), _BATCH):
            client.log_batch(run, metrics=metrics[first : first + _BATCH])
        client.log_batch(run, tags=[RunTag(key, value) for key, value in parcel.tags.items()])
        if parcel.summary:
            client.log_text(run, parcel.summary, "hotlap.md")
        if parcel.report:
            client.log_artifact(run, parcel.report)
        client.set_terminated(run)
        return f"run {run} of the experiment {name} in {client.tracking_uri}"


def _name(path: str) -> str:
    """MLflow admits letters, digits and _ - . space : / in names."""
    return "".join(each if each.isalnum() or each in "_-. :/" else "_" for each in path)
