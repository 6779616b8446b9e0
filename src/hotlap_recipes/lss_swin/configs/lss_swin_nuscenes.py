# The baseline: batch 4, float32, 8 workers.
_base_ = ["_base_/model.py", "_base_/nuscenes.py", "_base_/schedule.py", "_base_/runtime.py"]
