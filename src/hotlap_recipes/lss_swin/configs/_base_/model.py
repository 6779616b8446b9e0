# Lift-splat-shoot with Swin-T. `size` is base or tiny, `splat` is embedding_bag or cumsum.
model = dict(
    type="LiftSplatSwin",
    size="base",
    stride=16,
    depth=(4.0, 45.0, 1.0),
    splat="embedding_bag",
    drop_path_rate=0.1,
    # Vehicles cover about a fiftieth of the map.
    pos_weight=(4.0, 1.0),
)
grid = dict(x=(-50.0, 50.0, 0.5), y=(-50.0, 50.0, 0.5), z=(-10.0, 10.0, 20.0))
