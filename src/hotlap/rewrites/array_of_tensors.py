"""A list of tensors turned into an array, or a list of arrays into a tensor, element by element.

What it is
    `np.array` of tensors and `torch.tensor` of arrays go through every number as a Python object.
Before
    x = torch.tensor(frames)  # a list of arrays
After
    x = torch.tensor(np.array(frames))
When it is the same
    Always: the same numbers of the same type.
When it is not
    Lists of arrays of different lengths, for which neither works.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import ARRAY, TENSOR, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls, local_name
from hotlap.source.values import full_name

_OF_ARRAYS = ("torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.LongTensor", "torch.Tensor")
_OF_TENSORS = ("numpy.array", "numpy.asarray", "numpy.stack")


class ArrayOfTensors(Rewrite):
    id = "array-of-tensors"
    numerics = Numerics.BITWISE

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        for call in calls(function, *_OF_ARRAYS, *_OF_TENSORS):
            value = seen.value(call.args[0]) if call.args else None
            element = value.element if value is not None and value.type in ("list", "tuple") else None
            name = full_name(function.module, call.func)
            if element is None or not element.shape:
                continue
            if name in _OF_ARRAYS and element.type == ARRAY and local_name(function, "numpy"):
                yield Site(call, {"made": "torch.Tensor", "of": ARRAY})
            plain = len(call.args) == 1 and not call.keywords
            on_host = element.type == TENSOR and "cpu" in element.rest and not element.grad
            if name in _OF_TENSORS and on_host and plain and local_name(function, "torch"):
                yield Site(call, {"made": ARRAY, "of": "torch.Tensor"})

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        given = function.text(call.args[0])
        if site.values["of"] == ARRAY:
            return (function.replace(call.args[0], f"{local_name(function, 'numpy')}.array({given})"),)
        return (function.replace(call, f"{local_name(function, 'torch')}.stack({given}).numpy()"),)
