"""From trials to verdicts: how large a gain is, and whether the same model is still trained."""
