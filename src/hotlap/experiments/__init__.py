"""Experiments on the running job: what `profile` and `tune` learn by trying."""
