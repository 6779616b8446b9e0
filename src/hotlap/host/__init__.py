"""The facts of a machine and what it is doing, read from outside a job. No torch."""
