"""The keys that a configuration may have, and what their values may be. Any other is refused with the nearest one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hotlap_recipes.lss_swin import SIX, TARGETS, BadInputError
from hotlap_recipes.lss_swin.model import SIZES
from hotlap_recipes.lss_swin.splat import SPLATS


@dataclass(frozen=True)
class Kind:
    """What values a key takes: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]
    words_known: tuple[str, ...] = ()


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(least: int) -> Kind:
    words = f"a whole number, at least {least}"
    return Kind(words, lambda value: isinstance(value, int) and number(value) and value >= least)


def one_of(*known: str) -> Kind:
    return Kind(f"one of {', '.join(known)}", lambda value: value in known, known)


def numbers(count: int) -> Kind:
    return Kind(
        f"{count} numbers",
        lambda value: isinstance(value, list | tuple) and len(value) == count and all(map(number, value)),
    )


def absent_or(kind: Kind) -> Kind:
    return Kind(f"{kind.words}, or None", lambda value: value is None or kind.fits(value), kind.words_known)


ANY = Kind("anything", lambda _: True)
TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
POSITIVE = Kind("a number above 0", lambda value: number(value) and value > 0)
NOT_NEGATIVE = Kind("a number, at least 0", lambda value: number(value) and value >= 0)
PIXELS = Kind(
    "height and width in pixels",
    lambda value: numbers(2).fits(value) and all(isinstance(each, int) and each > 0 for each in value),
)
CAMERAS = Kind(
    f"cameras out of {', '.join(SIX)}",
    lambda value: isinstance(value, list | tuple) and len(value) > 0 and set(value) <= set(SIX),
)
LOSS_SCALE = Kind(
    "a number above 0, 'dynamic', or options of torch's GradScaler",
    lambda value: value == "dynamic" or isinstance(value, dict) or POSITIVE.fits(value),
)
LIST = Kind("a list", lambda value: isinstance(value, list | tuple))

Keys = dict[str, "Kind | Keys"]
KEYS: Keys = {
    "model": {
        "type": one_of("LiftSplatSwin"),
        "size": one_of(*SIZES),
        "stride": whole(4),
        "depth": numbers(3),
        "splat": one_of(*SPLATS),
        "drop_path_rate": NOT_NEGATIVE,
        "pos_weight": numbers(len(TARGETS)),
    },
    "grid": {"x": numbers(3), "y": numbers(3), "z": numbers(3)},
    "data": {
        "root": TEXT,
        "cameras": CAMERAS,
        "image_size": PIXELS,
        "decode": one_of("full", "scaled"),
        "packed": absent_or(TEXT),
        "samples_per_gpu": whole(1),
        "workers_per_gpu": whole(0),
        "pin_memory": FLAG,
        "persistent_workers": FLAG,
        "prefetch_factor": absent_or(whole(1)),
    },
    "optimizer": {"type": TEXT, "lr": POSITIVE, "weight_decay": NOT_NEGATIVE},  # and what torch's own takes
    "optimizer_config": {
        "grad_clip": Kind("a dict or None", lambda value: value is None or isinstance(value, dict))
    },
    "auto_scale_lr": {"enable": FLAG, "base_batch_size": whole(1)},
    "lr_config": {
        "policy": one_of("poly"),
        "power": NOT_NEGATIVE,
        "min_lr": NOT_NEGATIVE,
        "warmup": absent_or(one_of("linear")),
        "warmup_iters": whole(0),
        "warmup_ratio": POSITIVE,
        "by_epoch": Kind("False: it counts iterations", lambda value: value is False),
    },
    "runner": {"type": one_of("IterBasedRunner"), "max_iters": whole(1), "accumulative_counts": whole(1)},
    "evaluation": {"interval": whole(1), "metric": one_of("mIoU"), "pre_eval": FLAG},
    "checkpoint_config": {
        "interval": whole(1),
        "max_keep_ckpts": Kind("a whole number", lambda v: isinstance(v, int)),
    },
    "log_config": {"interval": whole(1)},
    "fp16": absent_or(Kind("dict(loss_scale=...)", lambda value: isinstance(value, dict))),
    "bf16": FLAG,
    "cudnn_benchmark": FLAG,
    "custom_imports": ANY,
    "custom_hooks": LIST,
    "seed": absent_or(whole(0)),
    "log_level": one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    "load_from": absent_or(TEXT),
    "resume_from": absent_or(TEXT),
    "work_dir": absent_or(TEXT),
}
FP16: Keys = {"loss_scale": LOSS_SCALE}


def check(config: Mapping[str, Any]) -> None:
    """Refuses what is unknown, unfit or missing. Names that begin with `_` are the configuration's own."""
    given = {name: value for name, value in config.items() if not name.startswith("_")}
    optimizer = _optimizer_keys(given.get("optimizer"))
    known: Keys = {**KEYS, "optimizer": optimizer, **({"fp16": FP16} if given.get("fp16") else {})}
    _check(given, known, "")
    for section, keys in _needed():
        missing = [key for key in keys if key not in given.get(section, {})]
        if missing:
            raise BadInputError(
                f"the configuration has no {section}.{missing[0]}.",
                "begin with one of the configurations of this recipe: _base_ = ['lss_swin_nuscenes.py'].",
            )
    if given.get("fp16") and given.get("bf16"):
        raise BadInputError("fp16 and bf16 are both set.", "give --options bf16=False, or fp16=None.")


def _needed() -> Iterator[tuple[str, Iterable[str]]]:
    yield "model", ("size", "splat")
    yield "data", ("root", "samples_per_gpu", "workers_per_gpu", "image_size", "cameras")
    yield "optimizer", ("type", "lr")
    yield "lr_config", ("policy", "power")
    yield "runner", ("type", "max_iters")


def _check(given: Mapping[str, Any], known: Keys, before: str) -> None:
    for name, value in given.items():
        place = f"{before}{name}"
        if name not in known:
            raise BadInputError(f"there is no key {place!r}.", _nearest(name, known, before))
        kind = known[name]
        if isinstance(kind, dict):
            if not isinstance(value, Mapping):
                raise BadInputError(
                    f"{place} is {value!r}.", f"it is a dict with {', '.join(kind)}: write {place}=dict(...)."
                )
            _check(value, kind, f"{place}.")
        elif not kind.fits(value):
            near = difflib.get_close_matches(str(value), kind.words_known, n=1, cutoff=0.4)
            remedy = f"did you mean {near[0]!r}?" if near else f"give {kind.words}."
            raise BadInputError(f"{place} is {value!r}, not {kind.words}.", remedy)


def _nearest(name: str, known: Keys, before: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {before + near[0]!r}?"
    elsewhere = [
        f"{section}.{key}"
        for section, keys in KEYS.items()
        if isinstance(keys, dict)
        for key in difflib.get_close_matches(name, keys, n=1)
    ]
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return f"the keys of {before.rstrip('.') or 'a configuration'} are {', '.join(known)}."


def _optimizer_keys(optimizer: Any) -> Keys:
    """`type`, and the arguments of torch's optimizer of that name."""
    names = [
        name for name, each in vars(torch.optim).items() if inspect.isclass(each) and name != "Optimizer"
    ]
    kind = one_of(*sorted(names))
    chosen = optimizer.get("type") if isinstance(optimizer, Mapping) else None
    if chosen in names:
        arguments = [*inspect.signature(getattr(torch.optim, chosen)).parameters][1:]
    else:  # the type itself is what will be refused
        arguments = [*optimizer] if isinstance(optimizer, Mapping) else []
    return {**dict.fromkeys(arguments, ANY), "type": kind, "lr": POSITIVE}
