"""A training command as the user runs it, unmodified."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """What is executed (`argv`), where, and what it is called in reports. A function of a process that was there has no
    `argv`."""

    argv: tuple[str, ...]
    cwd: str
    name: str

    def stored(self) -> Job:
        """What of it may be written down: without the values of secrets."""
        return replace(self, argv=masked(self.argv))

    @property
    def shown(self) -> str:
        """The command as one would type it, without the interpreter's path and without secrets."""
        words = list(masked(self.argv))
        if words and Path(words[0]).name.startswith("python"):
            words[0] = "python"
        return shlex.join(words) or self.name


# Masks values in a command whose names look like secrets, before the command is stored or shown.
#
# `--hf_token X`, `--hf_token=X`, `HF_TOKEN=X`, `wandb.api_key=X`, `https://user:X@host` and `?token=X` become `***`.
# Names are compared by whole words, so that `--tokenizer`, `--max_tokens`, `--eos_token` and `--key_dim` keep their
# values. HOTLAP_SECRETS (`name,name`) adds names. Only copies are masked: the job gets its real arguments.


MASK = "***"
NAMES = "HOTLAP_SECRETS"
_STRONG = {"password", "passwd", "passphrase", "secret", "credential", "credentials", "apikey", "accesskey"}
_AT_THE_END = _STRONG | {"token", "auth", "pwd"}
_KEYS = {"api", "access", "secret", "private", "auth", "encryption", "signing", "account", "license", "ssh"}
_TEXT_TOKENS = {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "class", "special", "start", "end", "stop"}
_TEXT_TOKENS |= {"begin", "image", "audio", "video", "prompt", "per", "by", "first", "last", "new", "blank"}
_ABOUT = {"file", "path", "dir", "name", "length", "len", "dim", "size", "id", "type"}
_PLAIN = re.compile(r"(?i:true|false|none|null|yes|no|on|off)?|[-+]?\d{1,4}|.*\.py")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PAIR = re.compile(r"([-+~]*)([\w.@/-]+)=(.*)", re.DOTALL)
_IN_URL = re.compile(r"(://)([^/\s@]*)@")
_IN_QUERY = re.compile(r"([?&]([\w.-]+)=)([^&#\s]+)")
_IN_JSON = re.compile(r"""((["']?)([\w.-]+)\2\s*:\s*)("[^"]*"|'[^']*'|[^\s,{}"']+)""")
_PART = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'])+|\s+""")


def masked(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with the values of secrets left out."""
    return tuple(_masked(words))


def masked_line(line: str) -> str:
    """The same for a command in one line."""
    try:
        words = tuple(shlex.split(line))
    except ValueError:
        return line
    hidden = masked(words)
    return line if hidden == words else shlex.join(hidden)


def is_secret(name: str) -> bool:
    """Whether an argument or a variable of that name holds a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if _plain(name) in _named() or _plain(name.rpartition(".")[2]) in _named():
        return True
    before, last = words[-2] if len(words) > 1 else "", words[-1]
    if last == "key":
        return not before or before in _KEYS
    if last == "token":
        return before not in _TEXT_TOKENS
    return last in _AT_THE_END or (bool(_STRONG & set(words)) and last not in _ABOUT)


def _masked(words: Sequence[str]) -> Iterator[str]:
    expected = False  # the value of the word before
    for word in words:
        if expected and not word.startswith("--"):
            yield word if _PLAIN.fullmatch(word) else MASK
            expected = False
            continue
        expected = word.startswith("-") and is_secret(word.lstrip("-"))
        yield _without_secrets(word)


def _without_secrets(word: str) -> str:
    """One word, which may be a pair, an address, or a whole command for a shell."""
    if any(each.isspace() for each in word) and not _is_json(word):
        parts = _PART.findall(word)
        hidden = iter(masked([part for part in parts if not part.isspace()]))
        return "".join(part if part.isspace() else next(hidden) for part in parts)
    pair = _PAIR.fullmatch(word)
    if pair and is_secret(pair[2]) and not _PLAIN.fullmatch(pair[3]):
        return f"{pair[1]}{pair[2]}={MASK}"
    word = _IN_URL.sub(_credentials, word)
    word = _IN_QUERY.sub(lambda found: found[1] + (MASK if is_secret(found[2]) else found[3]), word)
    if _is_json(word):
        word = _IN_JSON.sub(lambda found: found[1] + (f'"{MASK}"' if is_secret(found[3]) else found[4]), word)
    return word


def _is_json(word: str) -> bool:
    return "{" in word and ":" in word


def _credentials(found: re.Match[str]) -> str:
    user, colon, _ = found[2].partition(":")
    return f"{found[1]}{user if colon else ''}{colon}{MASK}@"


def _named() -> set[str]:
    return {_plain(name) for name in os.environ.get(NAMES, "").split(",") if name.strip()}


def _plain(name: str) -> str:
    return name.strip().lstrip("-").replace("-", "_").lower()
