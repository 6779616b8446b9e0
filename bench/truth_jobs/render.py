"""Scripts from templates: a family's data and model, a style's loop, and the slots that causes change."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
IMPORTS = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
"""
NAMES = (
    {"model": "model", "opt": "optimizer", "loader": "loader"},
    {"model": "net", "opt": "opt", "loader": "train_loader"},
    {"model": "network", "opt": "optim", "loader": "train_dl"},
)
FRAMEWORKS = {
    "lightning": "Lightning",
    "trainer": "HF Trainer",
    "accelerate": "Accelerate",
    "mmengine": "mmengine",
}
SLOTS = (
    "init",
    "setup",
    "helpers",
    "state",
    "after",
    "item",
    "forward",
    "after_loss",
    "prepare_model",
    "trainer_args",
)
PAD = "tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _ in items], batch_first=True)"
EQUAL = "lengths = [60 + length % 5 for length in lengths]"
IN_A_TUPLE = """
def as_batch(items):
    return (torch.utils.data.default_collate(items),)
"""
EXCHANGE = "return torch.zeros_like(x).index_add(0, targets, x.index_select(0, sources))"


@dataclass(frozen=True)
class Family:
    """What is trained: text of data and model, numbers for three sizes."""

    name: str
    batch: str  # names of a batch's parts
    kind: str  # dense, tokens, ragged or graph: what an item is
    doc: str
    sections: Mapping[str, str]

    @property
    def sizes(self) -> list[dict[str, str]]:
        return [
            dict(pair.split("=") for pair in each.split()) for each in self.sections["sizes"].split(" | ")
        ]


@dataclass
class Parts:
    """The slots of one script, for causes to change. Text may name other slots as `$slot`."""

    family: Family
    style: str
    size: int
    seed: int
    slots: dict[str, str]
    numbers: dict[str, str]
    loader: dict[str, object] = field(default_factory=lambda: {"shuffle": True, "drop_last": True})
    epoch: int = 500  # batches of one epoch
    algorithm: tuple[str, str] = ("torch.optim.SGD", "lr=0.01, momentum=0.9, fused=True")
    environment: dict[str, str] = field(default_factory=dict)
    sites: set[str] = field(
        default_factory=set
    )  # tags of places that are right beside lines marked `# PLANT`
    samples: float = 1.0  # of one optimizer step, against the script before

    def add(self, slot: str, text: str) -> None:
        self.slots[slot] = "\n".join(filter(None, [self.slots.get(slot, ""), text.strip("\n")]))

    @property
    def raw(self) -> bool:
        return self.style not in FRAMEWORKS

    @property
    def batch(self) -> int:
        return int(self.numbers["batch"])


@dataclass(frozen=True)
class Script:
    """A script as a user would have it, and the line ranges of what was planted."""

    text: str
    places: tuple[tuple[int, int], ...]


def _sections(name: str) -> dict[str, str]:
    parts = ("\n" + (HERE / name).read_text(encoding="utf-8")).split("\n### ")[1:]
    return {part.partition("\n")[0].strip(): part.partition("\n")[2].strip("\n") for part in parts}


@cache
def families() -> dict[str, Family]:
    found = {}
    for path in sorted(HERE.glob("*.families")):
        for head, body in _sections(path.name).items():
            name, batch, kind = (word.strip() for word in head.split("|"))
            doc, *texts = body.split("@@ ")
            sections = {
                text.partition("\n")[0].strip(): text.partition("\n")[2].strip("\n") for text in texts
            }
            found[name] = Family(name, batch, kind, doc.strip(), sections)
    return found


@cache
def styles() -> dict[str, str]:
    return _sections("styles.txt")


def blank(family: Family, style: str, size: int, seed: int) -> Parts:
    """A job that is well written."""
    slots = dict.fromkeys(SLOTS, "") | {"imports": IMPORTS.strip(), "pad": PAD, "exchange": EXCHANGE}
    slots |= {
        "lengths": EQUAL,
        "doc": family.doc,
        "data": family.sections["data"],
        "loader_class": "DataLoader",
    }
    slots["model_code"] = family.sections["model"]
    return Parts(family, style, size, seed, slots, dict(family.sizes[size]))


def render(parts: Parts) -> Script:
    words = _words(parts)
    text = _filled(styles()[parts.style], words)
    text = "\n".join(line for line in text.split("\n") if line.strip() != ",")
    text = re.sub(r"\n{4,}", "\n\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip("\n") + "\n"
    wanted = {"FIRST", *(f"@{site}" for site in parts.sites)}
    kept, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        code, mark, tags = line.partition("  # @") if "  # @" in line else line.partition("  # FIRST")
        tagged = (
            {f"@{tag.lstrip('@')}" for tag in tags.split()} if "@" in mark else {"FIRST"} if mark else set()
        )
        lines += [number] if tagged & wanted else []
        kept.append(code)
    script = "\n".join(kept)
    return Script(script, _spans(script, lines))


def _spans(script: str, lines: list[int]) -> tuple[tuple[int, int], ...]:
    """A marked line stands for the whole statement that begins there, a function or loop included."""
    ends: dict[int, int] = {}
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.stmt):
            ends[node.lineno] = max(ends.get(node.lineno, 0), node.end_lineno or node.lineno)
    return tuple((line, ends.get(line, line)) for line in lines)


def _words(parts: Parts) -> dict[str, str]:
    family, style = parts.family, parts.style
    names = NAMES[parts.seed % len(NAMES)]
    inside = style in ("lightning", "mmengine")
    model = "self.net" if inside else "model" if style == "trainer" else names["model"]
    words = {**family.sections, **parts.slots, **parts.numbers, **names, "loss_model": model}
    words |= {"model_code": _model(parts), "model": names["model"], "names": family.batch}
    words["data"] = words["data"].replace("(self, index):", "(self, index):  # @item")
    words |= {"seed": str(parts.seed), "count": str(parts.batch * parts.epoch)}
    words |= {"algorithm": parts.algorithm[0], "algorithm_args": parts.algorithm[1]}
    words["optimizers"] = _optimizers(parts)
    words["collate"] = family.sections.get("collate", "default_collate")
    keys = [name.strip() for name in family.batch.split(",")]
    words["inputs"] = ", ".join(f'"{key}": {key}' for key in keys)
    words["taken"] = ", ".join(f'inputs["{key}"]' for key in keys)
    loss = "\n".join(filter(None, [family.sections.get("loss", ""), parts.slots["after_loss"]]))
    words["loss"] = loss.replace("$model", "$loss_model")
    if _needs_tuple(parts):
        words["helpers"] = "\n\n\n".join(filter(None, [IN_A_TUPLE.strip(), words["helpers"]]))
    if inside:
        words["after"] = words["after"].replace("$model", "task.net" if style == "mmengine" else "self.net")
        words["prepare_model"] = words["prepare_model"].replace("$model", "self.net")
    elif style == "trainer":
        words["after"] = words["after"].replace("$model", "model")
    words["inner"] = _inner(parts)
    words["hook"] = "\n".join(filter(None, [words.get("hook", ""), _hook(words["after"])]))
    words["fit_more"] = words.get("fit_more", "")
    return words | _loader_words(parts, words["trainer_args"])


def _model(parts: Parts) -> str:
    """The model's text with what causes add to its last class, and its forward marked as a place."""
    head, word, tail = parts.slots["model_code"].rpartition("super().__init__()")
    tail = re.sub(r"(def forward\(.*\):)", r"\1  # @forward", tail)
    return f"{head}{word}\n        $init{tail}"


def _needs_tuple(parts: Parts) -> bool:
    """mmengine takes no bare tensor for a batch."""
    return (
        parts.style == "mmengine" and "," not in parts.family.batch and "collate" not in parts.family.sections
    )


def _hook(after: str) -> str:
    if not after:
        return ""
    body = "\n".join(f"    {line}" for line in ["step = self.global_step", *after.split("\n")])
    return f"def on_train_batch_end(self, outputs, batch, batch_idx):\n{body}"


def _optimizers(parts: Parts) -> str:
    make = "$algorithm({}, $algorithm_args)  # @optimizer"
    several = parts.family.sections.get("optimizers", "").split()
    if several:
        return "\n".join(f"$opt_{each} = " + make.format(f"$model.{each}.parameters()") for each in several)
    return "$opt = " + make.format("$model.parameters()")


def _inner(parts: Parts) -> str:
    own = parts.family.sections.get("inner")
    if own:
        return "\n".join(filter(None, [own, parts.slots["after_loss"]]))
    backward = "accelerator.backward(loss)" if parts.style == "accelerate" else "loss.backward()"
    if parts.seed % 2:
        return f"$opt.zero_grad()\n$loss\n{backward}\n$opt.step()"
    return f"$loss\n$opt.zero_grad()\n{backward}\n$opt.step()"


def _loader_words(parts: Parts, trainer: str) -> dict[str, str]:
    options = dict(parts.loader)
    if parts.style == "trainer":
        named = {"num_workers": 0, "persistent_workers": False, "prefetch_factor": None} | options
        chosen = {key: named[key] for key in ("num_workers", "persistent_workers", "prefetch_factor")}
        lines = [f"dataloader_{key}={value!r}," for key, value in chosen.items() if value]
        lines += [f"dataloader_drop_last={bool(options.get('drop_last'))},"]
        saves = [] if "save_strategy" in trainer else ['save_strategy="no",']
        return {"trainer_args": "\n".join(filter(None, [trainer, *lines, *saves]))}
    if "collate" in parts.family.sections:
        options["collate_fn"] = parts.family.sections["collate"]
    if _needs_tuple(parts):
        options["collate_fn"] = "as_batch"
    if "collate_fn" in parts.slots:
        options["collate_fn"] = parts.slots["collate_fn"]
    text = ", ".join(
        f"{key}={value if key == 'collate_fn' else repr(value)}" for key, value in options.items()
    )
    ends = ["enable_checkpointing=False,"] if "callbacks" not in trainer else []
    return {"loader_args": text, "trainer_args": "\n".join(filter(None, [trainer, *ends]))}


def _filled(text: str, words: Mapping[str, str]) -> str:
    """`$name` alone on a line takes as many lines as the text has, with its indentation; an empty one goes."""
    for _ in range(12):
        text, before = _filled_once(text, words), text
        if text == before:
            return text
    raise ValueError("slots name each other in a circle")


def _filled_once(text: str, words: Mapping[str, str]) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        alone = re.fullmatch(r"( *)\$(\w+)", line)
        if alone and alone[2] in words:
            value = words[alone[2]]
            lines += [f"{alone[1]}{each}" if each else "" for each in value.split("\n")] if value else []
        else:
            lines.append(re.sub(r"\$(opt)(?=_[a-z])|\$([a-z_]+)", lambda m: words[m[1] or m[2]], line))
    return "\n".join(lines)
