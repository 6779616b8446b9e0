"""A variational auto-encoder of event sequences, as in health records: events form sets, sets form a sequence.

A subject is a sequence of 12 to 1000 sets, a set is one to four events that happened together, and an event is an
embedding that a language model computed before. The encoder looks at the events of a set, then at the sets of the
sequence, and gives one latent vector for the subject; the decoder gives every set back from it. Written for PyTorch
Lightning. `--naive` trains as such scripts are written today, without it the way is fast.

    python -m hotlap_recipes.seqset_vae.make_data --out data
    python -m hotlap_recipes.seqset_vae.train --data_dir data --preset quick
"""

from __future__ import annotations

SPLITS = ("train", "valid", "test")
LARGEST_SET = 4
SHORTEST, LONGEST = 12, 1000
FACTORS = 8


class BadInputError(Exception):
    """What the user gave cannot be trained on: what is wrong, with the value, and one remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  -> {remedy}")
