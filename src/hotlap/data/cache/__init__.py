"""Keeps the items of a dataset of an unmodified script, and serves them bit-equal."""
