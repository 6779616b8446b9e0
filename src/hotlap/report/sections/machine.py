"""What the run took from its machine, and what the machine is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.report.document import Column, Section, Table
from hotlap.report.locale import Phrases

# More cores than this are a wall of numbers: their mean is in the sentence above.
MOST_CORES_LISTED = 16
LEAST_CORES = 0.005  # what is shown with two digits


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
    return Section("cpu", say("section.cpu"), tuple(sentences))


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
    return Section("host", say("section.host"), (), Table((Column(""), Column("")), tuple(rows)))


def _formats(seen: Mapping[str, Any], say: Phrases) -> str:
    named = [name for name, has in (("bf16", seen["cpu_bf16"]), ("AMX", seen["cpu_amx"])) if has]
    return ", ".join(named) or say("not_measured" if seen["cpu_flags"] is None else "host.none")
