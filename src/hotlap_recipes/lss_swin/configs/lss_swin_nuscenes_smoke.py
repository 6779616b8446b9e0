# Seconds on a processor: does everything run?
_base_ = ["lss_swin_nuscenes.py"]
model = dict(size="tiny")
data = dict(samples_per_gpu=2, workers_per_gpu=0)
lr_config = dict(warmup_iters=2)
runner = dict(max_iters=4)
evaluation = dict(interval=2)
checkpoint_config = dict(interval=2)
log_config = dict(interval=1)
