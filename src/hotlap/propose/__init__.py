"""Plans from facts: presets of a host and a job."""
