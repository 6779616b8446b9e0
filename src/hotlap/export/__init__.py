"""The figures of a run for trackers and dashboards; one file per tool in `tools/`."""
