"""Invent subjects whose latent factors are known, as Parquet: one row for each event, with its embedding.

A subject has 8 factors. Each pulls the embeddings of all its events a little in a direction of its own: the even ones
always, the odd ones by the time of day. Beside that an embedding is one of 64 codes, and noise. So a latent vector that
holds nothing of the factors reconstructs measurably worse, and what a model has found can be checked against them.

`--layout files` writes `train/subject_00000.parquet`, `flat` one `train.parquet`, both sorted by set.
`subjects.parquet` has a row for each subject: split, number of sets, outcome, factors. The default is 320 subjects,
about 180 MB.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotlap_recipes.seqset_vae import FACTORS, LARGEST_SET, LONGEST, SHORTEST, SPLITS

Array = NDArray[np.float64]

CODES = 64
DAY = 1440.0  # minutes
SET_SIZES = (0.3, 0.3, 0.25, 0.15)  # how often a set has 1, 2, 3, 4 events
CODE_SHARE, FACTOR_SHARE, NOISE_SHARE = 0.5, 0.25, 0.25  # of the variance of an embedding
MEDIAN_LENGTH, SPREAD = 120.0, 0.85  # of the log-normal lengths: mean 165, one in 170 is cut at 1000
MEDIAN_PAUSE = 40.0  # minutes between two sets


@dataclass(frozen=True)
class World:
    """What all subjects have in common."""

    codes: Array
    directions: Array

    @classmethod
    def drawn(cls, seed: int, width: int) -> World:
        rng = np.random.default_rng([seed, 0])
        return cls(rng.normal(size=(CODES, width)), rng.normal(size=(FACTORS, width)))


@dataclass(frozen=True)
class Subject:
    """The sets of one subject: the minute of each, how many events it has, and the events end to end."""

    number: int
    factors: Array
    outcome: int
    minutes: Array
    sizes: NDArray[np.int64]
    events: NDArray[np.float16]


def draw_subject(world: World, number: int, seed: int, lengths: tuple[int, int]) -> Subject:
    """The same subject whichever others are asked for."""
    rng = np.random.default_rng([seed, 1, number])
    factors = rng.normal(size=FACTORS)
    outcome = int(rng.random() < 1 / (1 + np.exp(-3 * (factors[0] - factors[2]))))
    count = int(np.clip(rng.lognormal(np.log(MEDIAN_LENGTH), SPREAD), *lengths))
    minutes = np.cumsum(rng.lognormal(np.log(MEDIAN_PAUSE), 1.0, count)) + rng.uniform(0, DAY)
    sizes = rng.choice(np.arange(1, LARGEST_SET + 1), count, p=SET_SIZES)
    pull = pull_of(factors, minutes) @ world.directions / np.sqrt(FACTORS)
    total = int(sizes.sum())
    events = np.sqrt(CODE_SHARE) * world.codes[rng.integers(CODES, size=total)]
    events += np.sqrt(FACTOR_SHARE) * np.repeat(pull, sizes, axis=0)
    events += np.sqrt(NOISE_SHARE) * rng.normal(size=events.shape)
    return Subject(number, factors, outcome, minutes, sizes, events.astype(np.float16))


def pull_of(factors: Array, minutes: Array) -> Array:
    """How strongly each factor acts at each time: (sets, factors), of variance 1."""
    rhythm = np.sqrt(2) * np.cos(2 * np.pi * minutes / DAY)
    by_time = np.where(np.arange(FACTORS) % 2 == 0, 1.0, rhythm[:, None])
    pull: Array = factors * by_time
    return pull


def event_table(subject: Subject) -> pa.Table:
    """One row for each event. The rows of a set have its number and its minute."""
    width = subject.events.shape[1]
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(subject.events.reshape(-1)), width)
    numbers = np.arange(len(subject.sizes), dtype=np.int32)
    return pa.table(
        {
            "subject": np.full(len(embeddings), subject.number, np.int32),
            "set": np.repeat(numbers, subject.sizes),
            "minute": np.repeat(subject.minutes, subject.sizes).astype(np.float32),
            "embedding": embeddings,
        }
    )


def write_split(out: Path, split: str, subjects: Iterator[Subject], layout: str) -> list[dict[str, Any]]:
    """The events of a split, and what `subjects.parquet` says of its subjects."""
    rows, writer = [], None
    (out / split).mkdir(parents=True) if layout == "files" else out.mkdir(parents=True, exist_ok=True)
    for subject in subjects:
        table = event_table(subject)
        if layout == "files":
            pq.write_table(table, out / split / f"subject_{subject.number:05d}.parquet")
        else:
            writer = writer or pq.ParquetWriter(out / f"{split}.parquet", table.schema)
            writer.write_table(table)  # a row group for each subject
        rows.append(subject_row(subject, split))
    if writer is not None:
        writer.close()
    return rows


def subject_row(subject: Subject, split: str) -> dict[str, Any]:
    known = {
        "subject": subject.number,
        "split": split,
        "sets": len(subject.sizes),
        "outcome": subject.outcome,
    }
    return known | {f"factor_{index}": float(value) for index, value in enumerate(subject.factors)}


def write_subjects(
    out: Path,
    counts: Sequence[int],
    width: int = 768,
    lengths: tuple[int, int] = (SHORTEST, LONGEST),
    layout: str = "files",
    seed: int = 0,
) -> Path:
    """So many subjects for training, validation and test."""
    if (out / "subjects.parquet").exists():
        raise FileExistsError(17, "File exists", str(out / "subjects.parquet"))
    world = World.drawn(seed, width)
    rows, first = [], 0
    for split, count in zip(SPLITS, counts, strict=True):
        numbers = range(first, first + count)
        rows += write_split(out, split, (draw_subject(world, n, seed, lengths) for n in numbers), layout)
        first += count
    pq.write_table(pa.Table.from_pylist(rows), out / "subjects.parquet")
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, default=Path("data"))
    add("--subjects", type=int, nargs=3, default=[240, 40, 40], metavar=("TRAIN", "VALID", "TEST"))
    add("--width", type=int, default=768, help="of an embedding (default 768)")
    add("--lengths", type=int, nargs=2, default=[SHORTEST, LONGEST], metavar=("LEAST", "MOST"), help="sets")
    add(
        "--layout", choices=("files", "flat"), default="files", help="a file for each subject, or for a split"
    )
    add("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if min(options.subjects) < 1 or options.width < 1 or not 1 <= options.lengths[0] <= options.lengths[1]:
        parser.error("every split needs a subject, an embedding a number, and LEAST is at most MOST.")
    try:
        write_subjects(
            options.out, options.subjects, options.width, tuple(options.lengths), options.layout, options.seed
        )
    except FileExistsError as error:
        parser.error(f"{error.filename} exists. Remove it, or choose another --out.")
    print(f"wrote {sum(options.subjects)} subjects to {options.out}")


if __name__ == "__main__":
    main()
