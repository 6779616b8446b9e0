"""Hydra configs with NeMo's keys."""
