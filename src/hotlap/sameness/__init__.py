"""Whether a setting still trains the same model: what items depend on, random states, bit-equality, audits."""
