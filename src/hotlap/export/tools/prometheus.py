"""Prometheus: a file in its text format, for node_exporter's textfile collector.

Where
    `prometheus=/var/lib/node_exporter/hotlap.prom`, or `metrics.prom` in the run folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from hotlap.facts.codec import write_text
from hotlap.ports.exporter import Exporter, Parcel


class Prometheus(Exporter):
    id = "prometheus"

    def send(self, parcel: Parcel, where: str) -> str:
        path = Path(where or Path(parcel.folder, "metrics.prom"))
        write_text(path, exposition(parcel), shared=bool(where))
        return str(path)


def exposition(parcel: Parcel) -> str:
    """Gauges, those of one name together, and `hotlap_info` with the tags as labels."""
    return "".join(f"{line}\n" for line in _lines(parcel))


def _lines(parcel: Parcel) -> Iterator[str]:
    run = {"run": parcel.name}
    tags = {key.removeprefix("hotlap."): value for key, value in parcel.tags.items()}
    yield "# TYPE hotlap_info gauge"
    yield f"hotlap_info{_labels({**run, **tags})} 1"
    ordered = sorted(parcel.metrics, key=lambda each: each.name)
    for name, group in groupby(ordered, key=lambda each: each.name):
        shown = f"hotlap_{name.replace('.', '_')}"
        yield f"# TYPE {shown} gauge"
        for each in group:
            yield f"{shown}{_labels({**run, **each.labels})} {float(each.value)!r}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
