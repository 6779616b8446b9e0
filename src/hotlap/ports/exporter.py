"""An exporter hands the figures of a run to a tracker or a dashboard; it computes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Metric:
    """One figure: `stage.share` of the label `stage=data`. What was not measured is no metric."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name for tools without labels: `hotlap/stage/share/data`."""
        return "/".join(["hotlap", *self.name.split("."), *self.labels.values()])


@dataclass(frozen=True)
class Series:
    """A figure over the steps of the run, at most some thousand points."""

    path: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Parcel:
    """What is exported of a run.

    `folder` is the run folder; `report` the file of its HTML report, `summary` its Markdown, empty where there is none;
    `tags` are words rather than figures: the verdict, the command, settings.
    """

    name: str
    folder: str
    metrics: tuple[Metric, ...]
    series: tuple[Series, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    report: str = ""


class Exporter(ABC):
    """One tool. `needs` are the modules that it imports, `extra` the extra of hotlap that installs them."""

    id: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""

    @abstractmethod
    def send(self, parcel: Parcel, where: str) -> str:
        """Hand it over; the answer says where to look. `where` is what the user named, or empty.

        Runs in a process of its own that is ended if it takes too long: it may wait, print and raise.
        """
