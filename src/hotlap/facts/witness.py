"""What a training process computed in its first steps, as far as two runs can be compared by it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Witness:
    """One run. Digests are of bits; `sketch` is a projection of all parameters onto a few numbers, one row a step.

    `start` is the sketch before the first step, so that what the steps have changed can be told from the model.
    """

    seed: int
    losses: tuple[float, ...]  # one for each backward
    samples: tuple[int, ...]  # that each backward has seen, 0 where they could not be counted
    batches: tuple[str, ...]  # digest of each batch, in the order in which the script got them
    start: tuple[float, ...]
    sketches: tuple[tuple[float, ...], ...]
    parameters: str  # digest after the last step
    generators: str  # digest of the random number generators after the last step
    steps: int
