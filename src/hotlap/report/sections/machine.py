"""What the run took from its machine, and what the machine is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.report.document import ColumnKind, Section, Table, TableColumn
from hotlap.report.locale import Phrases

# More cores than this are a wall of numbers: their mean is in the sentence above.
MOST_CORES_LISTED = 16
LEAST_CORES = 0.005  # what is shown with two digits
LEAST_IDLE = 0.005  # of the step


def has_workers(view: Mapping[str, Any]) -> bool:
    """Whether items were prepared in processes of their own."""
    return any(each["worker"] >= 0 for each in view["workers"])


def memory(view: Mapping[str, Any], say: Phrases) -> Section:
    """Memory of the process, and of the GPU where there is one."""
    title = say("section.memory")
    seen = view["memory"]
    if seen is None:
        return Section("memory", title, (say("not_measured_sentence"),))
    tree_peak = seen["tree_peak"] if has_workers(view) else None
    sentences = [
        say("memory.rss", {**seen, "growth": _signed(seen["rss_growth"], say), "tree_peak": tree_peak})
    ]
    if seen["cuda"] is not None:
        sentences.append(
            say("memory.cuda", {**seen["cuda"], "growth": _signed(seen["cuda"]["allocated_growth"], say)})
        )
    elif view["host"]["gpus"]:
        sentences.append(say("memory.cuda_none"))
    return Section("memory", title, tuple(sentences))


def _signed(growth: int | None, say: Phrases) -> str | None:
    return None if growth is None else ("+" if growth >= 0 else "") + say.number(growth, "size")


def cpu(view: Mapping[str, Any], say: Phrases) -> Section | None:
    """Cores in use by the training process, its workers and everything else."""
    seen = view["cpu"]
    if seen is None:
        return None
    stolen = seen["stolen"] if seen["stolen"] and seen["stolen"] >= LEAST_CORES else None
    figures = {**seen, "workers": seen["workers"] if has_workers(view) else None, "stolen": stolen}
    sentences = [say("cpu.figures", figures)]
    per_core = seen["per_core"]
    if per_core and len(per_core) <= MOST_CORES_LISTED:
        sentences.append(say("cpu.per_core", cores="  ".join(say.number(core, "share") for core in per_core)))
    if seen["gpu_busy"] is not None:
        sentences.append(say("cpu.gpu", busy=seen["gpu_busy"]))
    if (device := view.get("device")) is not None:
        sentences.append(say("cpu.device", busy=device["busy"], idle=_idle(device["idle"], say)))
    if seen.get("gpu_clock") is not None:
        sentences.append(say("cpu.gpu_clock", clock=seen["gpu_clock"]))
    if seen.get("gpu_throttle"):
        reasons = ", ".join(say(f"word.throttle-{reason}") for reason in seen["gpu_throttle"])
        sentences.append(say("cpu.gpu_throttled", share=seen["gpu_throttled"], reasons=reasons))
    if seen.get("gpu_others"):
        sentences.append(say("cpu.gpu_others", count=seen["gpu_others"]))
    if seen.get("gpu_lost"):
        sentences.append(say("cpu.gpu_lost"))
    return Section("cpu", say("section.cpu"), tuple(sentences))


def _idle(shares: Mapping[str, float], say: Phrases) -> str | None:
    """By what the host did meanwhile, the longest first."""
    noticed = sorted((each for each in shares.items() if each[1] >= LEAST_IDLE), key=lambda each: -each[1])
    return (
        ", ".join(f"{say(f'stage.{stage}')} {say.number(share, 'share')}" for stage, share in noticed) or None
    )


def host(view: Mapping[str, Any], say: Phrases) -> Section:
    """The facts of the machine that the figures hold for."""
    seen = view["host"]
    rows = [
        (say("host.system"), seen["system"]),
        (say("host.cpu"), say("host.cpu_figures", seen)),
        (say("host.cpu_formats"), _formats(seen, say)),
        (say("host.ram"), say("host.ram_figures", seen)),
        (say("host.shm"), say("host.shm_figures", seen)),
        *((say("host.gpu"), say("host.gpu_figures", gpu)) for gpu in seen["gpus"]),
        (say("host.start_method"), seen["start_method"]),
        (say("host.compiler"), seen["compiler"] or say("host.none")),
    ]
    if seen["storage"] is not None:
        rows.append((say("host.storage"), say("host.storage_figures", seen["storage"])))
    if not seen["gpus"]:
        rows.insert(5, (say("host.gpu"), say("host.none")))
    rows += [(name, version) for name, version in seen["versions"].items()]
    return Section("host", say("section.host"), (), Table((TableColumn(""), TableColumn("")), tuple(rows)))


def _formats(seen: Mapping[str, Any], say: Phrases) -> str:
    named = [name for name, has in (("bf16", seen["cpu_bf16"]), ("AMX", seen["cpu_amx"])) if has]
    return ", ".join(named) or say("not_measured" if seen["cpu_flags"] is None else "host.none")


# Loaders as the script built them, and what their workers did.


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
        TableColumn(say("column.worker")),
        TableColumn(say("column.busy"), ColumnKind.BAR),
        TableColumn(say("column.busy"), ColumnKind.NUMBER),
        TableColumn(say("column.items"), ColumnKind.NUMBER),
        TableColumn(say("column.fetch"), ColumnKind.NUMBER),
        TableColumn(say("column.on_cpu"), ColumnKind.NUMBER),
        TableColumn(say("column.collate"), ColumnKind.NUMBER),
        TableColumn(say("column.handover"), ColumnKind.NUMBER),
        TableColumn(say("column.startup"), ColumnKind.NUMBER),
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
