"""What every shard format must hold to, also one that lives outside hotlap.

from hotlap.testing.formats import check_format
check_format(MyFormat(), tmp_path)
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.data.samples import checksum
from hotlap.discover import card
from hotlap.errors import HotlapError
from hotlap.ports.shard_format import Fields, ShardFormat, ShardReader

SECTIONS = ("What it stores", "Who reads it", "What it costs")
MARK = b"<<a mark that occurs nowhere else>>"


def sample_sets(count: int = 23) -> dict[str, list[tuple[str, Fields]]]:
    """Samples as people have them, by kind of data."""
    random = np.random.default_rng(3)
    lengths = random.integers(0, 50, count)  # 0: a sample may be empty
    makers: dict[str, Callable[[int], Fields]] = {
        "sound": lambda at: {"wav": random.bytes(100 + at), "duration": at / 7, "text": f"Größe {at} 語"},
        "windows": lambda at: {"x": random.normal(size=(5, 3)).astype(np.float32), "y": at},
        "sequences": lambda at: {
            "tokens": random.integers(0, 2**15, lengths[at]).astype(np.int16),
            "sets": random.normal(size=(lengths[at], 2, 3)),
        },
        "pictures": lambda at: {"left.jpg": random.bytes(at), "mask": random.random((4, 6)) > 0.5},
        "values": lambda at: {
            "big": 2**40 + at, "share": at / 3, "yes": at % 2 == 0, "name": "a\nb\0c" * at,
            "odd": [None, 1, {"a": "ü"}], "mixed": None if at % 3 else at, "scalar": np.asarray(at, dtype=np.uint8),
        },
    }  # fmt: skip
    return {kind: [(f"{kind}-{at:03}", make(at)) for at in range(count)] for kind, make in makers.items()}


def check_format(form: ShardFormat, folder: Path) -> list[str]:
    """All checks of one format; returns the kinds of data that it stores."""
    check_card(form)
    assert form.name(7) != form.name(8) and form.name(7).endswith(form.suffix)
    taken = []
    for kind, samples in sample_sets().items():
        place = folder / kind
        place.mkdir(parents=True)
        try:
            path = write_shard(form, place, samples)
        except HotlapError as refusal:
            assert refusal.remedy, f"{form.id} refuses {kind} without a remedy: {refusal}"
            continue
        check_round_trip(form, path, samples)
        check_same_bytes(form, place, samples)
        taken.append(kind)
    assert taken, f"{form.id} stores no kind of data at all"
    check_damage(form, folder / "damage")
    return taken


def check_card(form: ShardFormat) -> None:
    """The card has a title and its sections, in their order."""
    heads = [line for line in card(form).splitlines() if line in SECTIONS]
    assert tuple(heads) == SECTIONS, f"the card of {form.id} has the sections {heads}, not {list(SECTIONS)}"


def write_shard(form: ShardFormat, folder: Path, samples: list[tuple[str, Fields]], number: int = 0) -> Path:
    """A shard of these samples, with all that belongs to it."""
    path = folder / form.name(number)
    with form.write(path) as writer:
        for key, fields in samples:
            writer.add(key, fields)
    return path


def check_round_trip(form: ShardFormat, path: Path, samples: list[tuple[str, Fields]]) -> None:
    """What comes back is equal, in any order, from any thread, and belongs to the caller."""
    reader = form.open(path)
    assert list(reader.keys) == [key for key, _ in samples], f"{form.id} gives other keys back"
    order = np.random.default_rng(5).permutation(len(samples)).tolist()
    with ThreadPoolExecutor(4) as threads:
        for at, back in zip(order, threads.map(reader.read, order), strict=True):
            _check_equal(form.id, samples[at], back)
    _check_own(form, reader, samples)
    stacked = reader.gather(order)
    for name, values in (stacked or {}).items():
        wanted = np.stack([np.asarray(samples[at][1][name]) for at in order])
        assert values.dtype == wanted.dtype and np.array_equal(values, wanted), (
            f"{form.id} gathers other {name}"
        )


def check_same_bytes(form: ShardFormat, folder: Path, samples: list[tuple[str, Fields]]) -> None:
    """The same samples give the same files, and an unpickled format works."""
    again = folder / "again"
    again.mkdir()
    write_shard(pickle.loads(pickle.dumps(form)), again, samples)
    for written in (each for each in again.rglob("*") if each.is_file()):
        other = folder / written.relative_to(again)
        assert other.read_bytes() == written.read_bytes(), f"{form.id} wrote {written.name} in two ways"


def check_damage(form: ShardFormat, folder: Path) -> None:
    """A flipped byte inside a sample changes that sample or is refused: no reader returns the old content."""
    folder.mkdir()
    samples: list[tuple[str, Fields]] = [
        (f"clip{at}", {"wav": MARK if at == 2 else bytes(40), "duration": 1.0}) for at in range(4)
    ]
    path = write_shard(form, folder, samples)
    content = bytearray(path.read_bytes())
    assert content.count(MARK) == 1, f"{form.id} does not store bytes as they are"
    content[content.index(MARK) + 5] ^= 0x10
    path.write_bytes(content)
    try:
        damaged = form.open(path).read(2)
    except HotlapError as error:
        assert str(path) in str(error), f"{form.id} does not name the damaged shard"
    else:
        assert checksum(damaged) != checksum(samples[2][1]), f"{form.id} returns what is not in the file"


def _check_own(form: ShardFormat, reader: ShardReader, samples: list[tuple[str, Fields]]) -> None:
    for name, value in reader.read(0).items():
        if isinstance(value, np.ndarray):
            assert value.flags.writeable, f"{form.id}: '{name}' cannot be changed by its owner"
            value[...] = 1
    _check_equal(form.id, samples[0], reader.read(0))


def _check_equal(name: str, sample: tuple[str, Fields], back: Mapping[str, Any]) -> None:
    key, fields = sample
    assert back.keys() == fields.keys(), f"{name}: {key} has the fields {sorted(back)}, not {sorted(fields)}"
    for field, value in fields.items():
        got = bytes(back[field]) if isinstance(back[field], memoryview) else back[field]
        assert type(got) is type(value), f"{name}: {key}.{field} is {type(got)}, not {type(value)}"
    assert checksum(back) == checksum(fields), f"{name}: {key} has another content"
