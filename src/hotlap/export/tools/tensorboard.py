"""TensorBoard: scalars of the run and of its steps, the report as text with a link to the page.

Where
    `tensorboard=FOLDER`, or `tensorboard` in the run folder: `tensorboard --logdir .hotlap/runs` shows all runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hotlap.ports.exporter import Exporter, Parcel


class TensorBoard(Exporter):
    id = "tensorboard"
    needs = ("tensorboard",)
    extra = "tensorboard"

    def send(self, parcel: Parcel, where: str) -> str:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = Path(where, parcel.name) if where else Path(parcel.folder, "tensorboard")
        writer = EventFileWriter(str(folder))
        try:
            for metric in parcel.metrics:
                writer.add_event(_scalar(metric.path, metric.value, 0))
            for series in parcel.series:
                for step, value in zip(series.steps, series.values, strict=True):
                    writer.add_event(_scalar(series.path, value, step))
            writer.add_event(_text("hotlap/report", _words(parcel)))
        finally:
            writer.close()
        return str(folder)


def _words(parcel: Parcel) -> str:
    tags = "".join(f"- {key}: `{value}`\n" for key, value in parcel.tags.items())
    link = f"[report.html]({Path(parcel.report).resolve().as_uri()})\n\n" if parcel.report else ""
    return f"{link}{tags}\n{parcel.summary}"


def _scalar(tag: str, value: float, step: int) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Event(
        wall_time=time.time(), step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    )


def _text(tag: str, text: str) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    value = Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name=tag, description=""),
        tensor=TensorProto(dtype=DT_STRING, string_val=[text.encode("utf-8", "replace")]),
    )
    return Event(wall_time=time.time(), summary=Summary(value=[value]))
