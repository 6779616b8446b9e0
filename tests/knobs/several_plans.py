"""Runs one unmodified script under several plans, one after the other in one process, each in a folder of its own.

    python several_plans.py SCRIPT FOLDER '{"name": {"knob": "setting"}}'

Writes what became of each plan to FOLDER/told.json. The script is given --steps and --dump.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch

from hotlap.plan.catalogue import some_knobs
from hotlap.probe import boundary
from hotlap.seams import model, optimizer, process
from hotlap.seams.fitter import Fitter

STEPS = "20"
script, folder, plans = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), json.loads(sys.argv[3])


def of_torch():
    owner = torch.optim.Optimizer
    functions = [torch.nn.Module.__call__, torch.autograd.backward, torch.optim.AdamW.__init__]
    return [*functions, owner.__init__, owner.zero_grad, "__init_subclass__" in vars(owner)]


before, told = of_torch(), {}
for name, settings in plans.items():
    (folder / name).mkdir()
    os.chdir(folder / name)
    torch._dynamo.reset()
    fitter = Fitter(settings, some_knobs(settings))
    for seam in (process, model, optimizer):
        seam.install(fitter)
    sys.argv = [str(script), "--steps", STEPS, "--dump", "dump.pt"]
    runpy.run_path(str(script), run_name="__main__")
    fitter.undo()
    told[name] = {
        "acts": {each.knob: each.numerics for each in fitter.fitted if each.acts},
        "cannot": {each.knob: each.reason for each in fitter.fitted if not each.acts},
        "step_downs": [str(each) for each in fitter.step_downs],
        "faults": [*boundary.faults],
        "undone": of_torch() == before,
    }
    boundary.faults.clear()
(folder / "told.json").write_text(json.dumps(told))
