"""NEST: speech without labels. A Fast-Conformer predicts what a random quantizer says of the clean sound from noisy,
masked features.

The recipe stands alone: it needs no NeMo, reads NeMo's configs, manifests and tarred data, and its weights go to
NeMo's `EncDecDenoiseMaskedTokenPredModel` and back.

    python -m hotlap_recipes.nest.make_data --out speech
    python -m hotlap_recipes.nest.train --config-name nest_fast-conformer_fast size=small \\
        model.train_ds.manifest_filepath=speech/train_manifest.json \\
        model.train_ds.noise_manifest=speech/noise_manifest.json \\
        model.validation_ds.manifest_filepath=speech/validation_manifest.json
"""

from __future__ import annotations


class BadInputError(Exception):
    """What the user gave cannot be trained on: what is wrong, with the value, and one remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n  -> {remedy}")
