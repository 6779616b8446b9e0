evaluation = dict(interval=2000, metric="mIoU", pre_eval=True)
checkpoint_config = dict(interval=2000, max_keep_ckpts=3)
log_config = dict(interval=50)
bf16 = False
cudnn_benchmark = True
seed = 0
log_level = "INFO"
load_from = None
resume_from = None
