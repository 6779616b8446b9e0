"""OpenTelemetry: gauges by OTLP over HTTP.

Where
    `otel=http://collector:4318/v1/metrics`, or what OpenTelemetry goes by (`OTEL_EXPORTER_OTLP_ENDPOINT`, else a
    collector on this machine). `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` are kept.
"""

from __future__ import annotations

import os
from itertools import groupby

from hotlap.ports.exporter import Exporter, Parcel


class OpenTelemetry(Exporter):
    id = "otel"
    needs = ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http.metric_exporter")
    extra = "otel"

    def send(self, parcel: Parcel, where: str) -> str:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource

        service = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: "hotlap"}
        tags = {"hotlap.run": parcel.name, **parcel.tags}
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader], Resource.create({**service, **tags}), shutdown_on_exit=False)
        meter = provider.get_meter("hotlap")
        ordered = sorted(parcel.metrics, key=lambda each: each.name)
        for name, group in groupby(ordered, key=lambda each: each.name):
            gauge = meter.create_gauge(f"hotlap.{name}")
            for each in group:
                gauge.set(each.value, dict(each.labels))
        exporter = OTLPMetricExporter(endpoint=where or None)
        seen = reader.get_metrics_data()
        if seen is None or exporter.export(seen) is not MetricExportResult.SUCCESS:
            raise ConnectionError(f"the collector at {exporter._endpoint} did not take it")
        return str(exporter._endpoint)
