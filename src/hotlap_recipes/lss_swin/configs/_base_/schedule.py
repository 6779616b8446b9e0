# The learning rate is that of a batch of 4: it grows with samples_per_gpu x accumulative_counts x GPUs.
optimizer = dict(type="AdamW", lr=2e-4, weight_decay=0.01)
optimizer_config = dict(grad_clip=dict(max_norm=5.0))
auto_scale_lr = dict(enable=True, base_batch_size=4)
lr_config = dict(
    policy="poly",
    power=1.0,
    min_lr=0.0,
    by_epoch=False,
    warmup="linear",
    warmup_iters=1500,
    warmup_ratio=1e-3,
)
runner = dict(type="IterBasedRunner", max_iters=40000, accumulative_counts=1)
