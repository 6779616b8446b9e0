"""The attack catalogue: small training scripts in which a setting that serves data may train another model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
CONTROL = "control"


@dataclass(frozen=True)
class Attack:
    """A script: `body` stands between the prelude and the loop. `loop` is empty where the body has its own."""

    name: str
    kind: str
    what: str  # goes wrong, or, for a control, the job that it stands for
    body: str
    loop: str = "raw"
    workers: tuple[int, ...] = (0, 2)  # for which the plain script trains the same model in every run

    def script(self, workers: int) -> str:
        parts = [_read("prelude.txt").replace("@WORKERS@", str(workers)), self.body.strip("\n")]
        parts += [_read(f"loop_{self.loop}.txt")] if self.loop else []
        return "\n\n".join([*parts, _read("end.txt")])


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def catalogue() -> list[Attack]:
    """All attacks, each from a file `<kind>.txt`, and the controls."""
    found = [attack for path in sorted(_HERE.glob("*.attacks")) for attack in _parsed(path)]
    assert len({each.name for each in found}) == len(found), "names of attacks are unique"
    return found


def _parsed(path: Path) -> list[Attack]:
    """Attacks of a file: `### name | loop | workers`, a comment line with what goes wrong, and the body."""
    attacks = []
    for part in path.read_text(encoding="utf-8").split("\n### ")[1:]:
        head, _, rest = part.partition("\n")
        name, *words = [word.strip() for word in head.split("|")]
        loop = next((word for word in words if word.isalpha()), "raw")
        workers = next((word for word in words if word[0].isdigit()), "0,2")
        what, _, body = rest.partition("\n")
        numbers = tuple(int(each) for each in workers.split(","))
        own = "" if loop == "own" else loop
        attacks.append(Attack(name, path.stem, what.removeprefix("# "), body, own, numbers))
    return attacks
