# High memory: batch 8, mixed precision.
_base_ = ["lss_swin_nuscenes.py"]
data = dict(samples_per_gpu=8, workers_per_gpu=12, prefetch_factor=4)
fp16 = dict(loss_scale="dynamic")
