# As such trainings are written today: whole images decoded, points laid out and summed up, evaluation every few steps.
_base_ = ["lss_swin_nuscenes.py"]
model = dict(splat="cumsum")
data = dict(decode="full")
evaluation = dict(interval=10, pre_eval=False)
