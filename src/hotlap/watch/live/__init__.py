"""A running job as its run folder shows it: read from outside, by another process, at any time. No torch."""
