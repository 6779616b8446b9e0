# One camera: cameras=("CAM_FRONT",).
data = dict(
    root="data/nuscenes",
    cameras=("CAM_FRONT_LEFT", "CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_BACK_LEFT", "CAM_BACK", "CAM_BACK_RIGHT"),
    image_size=(128, 352),
    decode="scaled",
    packed=None,
    samples_per_gpu=4,
    workers_per_gpu=8,
    pin_memory=True,
    persistent_workers=True,
    prefetch_factor=2,
)
