# Speed first: batch 4, mixed precision, 16 workers with 8 batches each ahead.
_base_ = ["lss_swin_nuscenes.py"]
data = dict(samples_per_gpu=4, workers_per_gpu=16, prefetch_factor=8)
fp16 = dict(loss_scale="dynamic")
