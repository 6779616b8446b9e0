# Balanced: batch 6, mixed precision, 12 workers with 4 batches each ahead.
_base_ = ["lss_swin_nuscenes.py"]
data = dict(samples_per_gpu=6, workers_per_gpu=12, prefetch_factor=4)
fp16 = dict(loss_scale="dynamic")
