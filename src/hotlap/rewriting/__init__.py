"""Rewrites of the user's source at work: found in its text, applied in memory, switched in a running process."""
