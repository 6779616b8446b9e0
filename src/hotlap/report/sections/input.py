"""Loaders as the script built them, and what their workers did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.report.document import Column, Kind, Section, Table
from hotlap.report.locale import Phrases
from hotlap.report.sections.machine import has_workers

LEAST_STARTUP_S = 0.01  # worker processes take longer; without them it is nothing to speak of


def loaders(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """One sentence per DataLoader that was used, with its number where there are several."""
    numbered = list(enumerate(view["loaders"]))
    used = [(number, each) for number, each in numbered if each["batches"] or each["epochs"]] or numbered
    sentences = [_loader(each, say) for _, each in used]
    if len(numbered) > 1:
        numbers = (number for number, _ in used)
        told = zip(numbers, sentences, strict=True)
        sentences = [say("loaders.numbered", number=number, loader=sentence) for number, sentence in told]
    return Section("loaders", say("section.loaders"), tuple(sentences)) if sentences else None


def _loader(loader: Mapping[str, Any], say: Phrases) -> str:
    figures = {
        **loader,
        "kind": loader["dataset"]["kind"],
        "length": loader["dataset"]["length"],
        "item_bytes": loader["dataset"]["item_bytes"],
        "shown": loader["place"]["shown"] if loader["place"] else None,
        "workers": say("loaders.in_workers", loader) if loader["num_workers"] else say("loaders.in_main"),
        "pinned": say("loaders.pinned" if loader["pin_memory"] else "loaders.unpinned"),
        "startup": loader["startup_s"] if loader["startup_s"] >= LEAST_STARTUP_S else None,
        "epochs": loader["epochs"] or None,
    }
    sentence = say("loaders.figures", figures)
    return sentence if loader["training"] else f"{sentence} {say('loaders.validation')}"


def workers(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """Fetch, collate, hand-over and occupancy of every worker."""
    if not view["workers"]:
        return None
    columns = (
        Column(say("column.worker")),
        Column(say("column.busy"), Kind.BAR),
        Column(say("column.busy"), Kind.NUMBER),
        Column(say("column.items"), Kind.NUMBER),
        Column(say("column.fetch"), Kind.NUMBER),
        Column(say("column.on_cpu"), Kind.NUMBER),
        Column(say("column.collate"), Kind.NUMBER),
        Column(say("column.handover"), Kind.NUMBER),
        Column(say("column.startup"), Kind.NUMBER),
    )
    rows = tuple(_worker_row(each, len(view["loaders"]), say) for each in view["workers"])
    note = say("workers.note" if has_workers(view) else "workers.note_main")
    return Section("workers", say("section.workers"), (), Table(columns, rows), (note,))


def worker_name(worker: Mapping[str, Any], loaders: int, say: Phrases) -> str:
    """`2`, or `main` for items prepared on the training thread; with the loader where there are several."""
    name = say("workers.main") if worker["worker"] < 0 else str(worker["worker"])
    return say("workers.of_loader", name=name, loader=worker["loader"]) if loaders > 1 else name


def _worker_row(worker: Mapping[str, Any], loaders: int, say: Phrases) -> tuple[str | float, ...]:
    in_main = worker["worker"] < 0
    started = worker["startup_s"] if worker["startups"] and not in_main else None
    return (
        worker_name(worker, loaders, say),
        worker["busy"] or 0.0,
        say.number(worker["busy"], "share"),
        say.number(worker["items"], "count"),
        say.number(worker["fetch_ms_per_item"], "ms"),
        say.number(worker["cpu_share"], "share"),
        say.number(worker["collate_ms_per_batch"], "ms"),
        "-" if in_main else say.number(worker["wait_ms_per_batch"], "ms"),
        "-" if started is None else say("workers.startups", startups=worker["startups"], seconds=started),
    )
