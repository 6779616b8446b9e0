"""plan.yaml: `hotlap: 1`, `settings:` and, where `tune` wrote it, `proof:`. Read in the parent only, which has YAML."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hotlap.discover import pick
from hotlap.errors import FactError, UsageError
from hotlap.facts import codec
from hotlap.facts.plan import PLAN_SCHEMA, Plan, Proof
from hotlap.ports.knob import Knob
from hotlap.seams.catalogue import all_knobs
from hotlap.seams.plan import checked

_KEYS = ("hotlap", "settings", "proof")
_WIDTH = 96


def read_plan(path: Path | str, knobs: Mapping[str, Knob] | None = None) -> Plan:
    """A plan whose every line holds for these knobs, or for all there are; else it is refused with a remedy."""
    try:
        return plan_of(_loaded(Path(path)), all_knobs() if knobs is None else knobs)
    except UsageError as error:
        raise FactError(f"{path}: {error.what}", error.remedy) from None


def plan_of(plain: Any, knobs: Mapping[str, Knob]) -> Plan:
    """The plan that YAML describes."""
    if not isinstance(plain, dict):
        raise UsageError(f"a plan is a mapping, not {_kind(plain)}.", "begin it with the line `hotlap: 1`")
    for key in plain:
        pick("part of a plan", str(key), _KEYS)
    _check_schema(plain.get("hotlap"))
    settings = plain.get("settings") or {}
    if not isinstance(settings, dict):
        raise UsageError(f"settings are a mapping, not {_kind(settings)}.", "write one `knob: value` a line")
    proof = plain.get("proof")
    return Plan(checked(settings, knobs), codec.from_plain(Proof, proof, "proof") if proof else None)


def plan_text(plan: Plan) -> str:
    """YAML with the reason of each setting as a comment above it."""
    lines = [f"hotlap: {PLAN_SCHEMA}", "settings:" if plan.settings else "settings: {}"]
    for key, value in plan.settings.items():
        comment = textwrap.wrap(plan.reasons.get(key, ""), _WIDTH, break_on_hyphens=False)
        lines += [f"  # {line}" for line in comment]
        lines.append(f"  {yaml.safe_dump({key: value}).strip()}")
    if plan.proof is not None:
        lines.append(yaml.safe_dump({"proof": codec.to_plain(plan.proof)}, sort_keys=False).strip())
    return "\n".join(lines) + "\n"


def write_plan(path: Path, plan: Plan) -> None:
    codec.write_text(path, plan_text(plan))


def _loaded(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Strict)
    except FileNotFoundError:
        raise FactError(
            f"there is no plan {path}.", "write one: hotlap plan --preset balanced train.py > plan.yaml"
        ) from None
    except OSError as error:
        raise FactError(f"{path} cannot be read: {error.strerror}.", "name a plan file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FactError(f"{path} is not readable YAML: {_first_fault(error)}.", "mend that line") from None


def _check_schema(schema: Any) -> None:
    if schema is None:
        raise UsageError(
            "the plan does not say which schema it has.", f"begin it with `hotlap: {PLAN_SCHEMA}`"
        )
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise UsageError(f"the schema `hotlap: {schema}` is no version.", f"write `hotlap: {PLAN_SCHEMA}`")
    if schema > PLAN_SCHEMA:
        raise UsageError(
            f"the plan has schema {schema}, this hotlap reads up to {PLAN_SCHEMA}.",
            "update hotlap: pip install -U hotlap",
        )


def _first_fault(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(error).partition("\n")[0]


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "text", type(None): "nothing", bool: "a truth value"}
    return kinds.get(type(value), "a number")


class _Strict(yaml.SafeLoader):
    """YAML takes the last of two equal keys in silence; in a plan one of them is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value}' stands there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
