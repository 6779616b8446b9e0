# bfloat16: the range of float32, so that no loss is scaled.
_base_ = ["lss_swin_nuscenes_optimized.py"]
fp16 = None
bf16 = True
