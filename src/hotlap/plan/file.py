"""plan.yaml: `hotlap: 1`, `settings:`, `rewrites:` and, where `tune` wrote it, `proof:`.

Read in the parent only, which has YAML.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hotlap.discover import pick
from hotlap.errors import FactError, UsageError
from hotlap.facts import codec
from hotlap.facts.plan import PLAN_SCHEMA, Plan, Proof
from hotlap.facts.rewrite import Rewriting, is_rewrite
from hotlap.plan.catalogue import all_knobs, checked, with_rewrites
from hotlap.ports.knob import Knob

_KEYS = ("hotlap", "settings", "rewrites", "proof")
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
    settings = {} if plain.get("settings") is None else plain["settings"]
    if not isinstance(settings, dict):
        raise UsageError(f"settings are a mapping, not {_kind(settings)}.", "write one `knob: value` a line")
    settings = {**settings, **_rewrites(plain.get("rewrites"))}
    return Plan(checked(settings, with_rewrites(knobs, settings)), _proof(plain.get("proof")))


def plan_text(plan: Plan) -> str:
    """YAML with the reason of each setting as a comment above it."""
    settings = {key: value for key, value in plan.settings.items() if not is_rewrite(key)}
    rewrites = [Rewriting.of(*each).listed() for each in plan.settings.items() if is_rewrite(each[0])]
    lines = [f"hotlap: {PLAN_SCHEMA}", "settings:" if settings else "settings: {}"]
    for key, value in settings.items():
        comment = textwrap.wrap(plan.reasons.get(key, ""), _WIDTH, break_on_hyphens=False)
        lines += [f"  # {line}" for line in comment]
        lines.append(f"  {yaml.safe_dump({key: value}).strip()}")
    if rewrites:
        lines.append(yaml.safe_dump({"rewrites": rewrites}, sort_keys=False, width=_WIDTH).strip())
    if plan.proof is not None:
        lines.append(yaml.safe_dump({"proof": codec.to_plain(plan.proof)}, sort_keys=False).strip())
    return "\n".join(lines) + "\n"


def write_plan(path: Path, plan: Plan) -> None:
    codec.write_text(path, plan_text(plan))


def _loaded(path: Path) -> Any:
    try:
        return load(path)
    except FileNotFoundError:
        raise FactError(
            f"there is no plan {path}.", "write one: hotlap plan --preset balanced train.py > plan.yaml"
        ) from None
    except OSError as error:
        raise FactError(f"{path} cannot be read: {error.strerror}.", "name a plan file") from None
    except RefusedError as error:
        raise FactError(f"{path} is not readable YAML: {error.what}.", error.remedy) from None


def _rewrites(plain: Any) -> dict[str, str]:
    """Settings by the rewrite's key; an entry that is none is refused."""
    if plain is None:
        return {}
    if not isinstance(plain, list):
        raise UsageError(f"rewrites are a list, not {_kind(plain)}.", "take those that `tune` wrote")
    try:
        found = [codec.from_plain(Rewriting, each, "rewrites") for each in plain]
        return {each.key: Rewriting.of(each.key, each.setting).setting for each in found}
    except (FactError, ValueError) as error:
        what = error.what if isinstance(error, FactError) else f"{error}."
        raise UsageError(what, "take the entry as `tune` or `profile` wrote it") from None


def _proof(plain: Any) -> Proof | None:
    try:
        return None if plain is None else codec.from_plain(Proof, plain, "proof")
    except FactError as error:
        raise UsageError(error.what, "leave `proof:` out, or take the plan that `tune` wrote") from None


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


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "text", type(None): "nothing", bool: "a truth value", dict: "a mapping"}
    return kinds.get(type(value), "a number")


# YAML without surprises: plain mappings, lists, text and numbers that mean what they look like.
#
# Refused: two equal keys, keys that are no plain words, tags, anchors and aliases, deep nesting, large files,
# and numbers that YAML 1.1 reads otherwise than people do (`010` is 8 to it, `1:30` is 90). Dates stay text.


MOST_BYTES = 1 << 20
DEEPEST = 20
MOST_DIGITS = 40  # of a number: as text, no figure that hotlap writes has more
_SHOWN = 60
_UNWANTED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_OCTAL = re.compile(r"[-+]?0[0-7_]+")


class RefusedError(ValueError):
    """What stands where, and the spelling that would do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


def load(path: Path) -> Any:
    """What the file says, as plain data; raises RefusedError, and OSError where it cannot be read."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise RefusedError(f"it has more than {MOST_BYTES:,} bytes", "name a file of settings")
    try:
        return yaml.load(content.decode("utf-8"), _Strict)
    except RefusedError:
        raise
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise RefusedError(f"{line}{error.problem or error.context}", "mend that line") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise RefusedError(str(error).partition("\n")[0], "mend that file") from None


class _Strict(yaml.SafeLoader):
    """Looks at each node while it is composed, so that nothing large or deep is ever built."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in known if tag not in _UNWANTED]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            raise _refused(event, f"'{sign}{event.anchor}' is an anchor or an alias", "write the value out")
        if event.tag is not None:
            raise _refused(event, f"'{event.tag}' is a tag", "leave it out and write the plain value")
        if self._depth >= DEEPEST:
            raise _refused(event, f"more than {DEEPEST} levels are nested", "write `knob: value` lines")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode) and node.tag in _NUMBERS and node.style is None:
            _require_plain(node)
        if isinstance(node, yaml.MappingNode):
            _require_keys(node.value)
        return node


def _require_keys(pairs: Iterable[tuple[Any, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if not isinstance(key, yaml.ScalarNode):
            raise _refused(key, f"a {key.id} stands where a key belongs", "write `knob: value`")
        if key.value in seen:
            raise _refused(
                key, f"'{key.value:.{_SHOWN}}' stands there twice", "mend that line: leave one of them out"
            )
        seen.add(key.value)


def _require_plain(node: yaml.ScalarNode) -> None:
    """A number as people read it."""
    text = node.value
    what = f"'{text:.{_SHOWN}}'"
    if len(text) > MOST_DIGITS:
        raise _refused(node, f"the number {what} has {len(text):,} digits", f"write at most {MOST_DIGITS}")
    if ":" in text:
        raise _refused(
            node, f"{what} would be read as {_sixties(text)}", f'write {_sixties(text)} or "{text}"'
        )
    if _OCTAL.fullmatch(text):
        plain, eight = text.replace("_", ""), int(text.replace("_", ""), 8)
        raise _refused(node, f"{what} would be read as {eight}", f"write {int(plain)} or {eight}")
    if "_" in text:
        raise _refused(node, f"{what} has an underscore", f"write {text.replace('_', '')}")


def _sixties(text: str) -> str:
    """`1:30` as YAML 1.1 counts it."""
    sign = -1.0 if text.startswith("-") else 1.0
    total = 0.0
    for part in text.lstrip("+-").replace("_", "").split(":"):
        total = total * 60 + float(part or 0)
    return f"{sign * total:.10g}"


def _refused(at: Any, what: str, remedy: str) -> RefusedError:
    return RefusedError(f"line {at.start_mark.line + 1}: {what}", remedy)
