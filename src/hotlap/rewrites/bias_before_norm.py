"""A convolution's bias right before a batch norm.

What it is
    The norm subtracts the mean, and with it the bias: it is added, has a gradient and a state in the optimizer, and
    changes nothing.
Before
    nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64))
After
    nn.Sequential(nn.Conv2d(3, 64, 3, bias=False), nn.BatchNorm2d(64))
When it is the same
    What the model computes, up to rounding.
When it is not
    The weights drawn after it are others, as the bias is drawn too, and checkpoints have one entry less: it is advice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import pairwise

from hotlap.ports.knob import Numerics
from hotlap.ports.rewrite import Cost, Edit, Function, Rewrite, Seen, Site
from hotlap.rewrites import calls
from hotlap.source.values import full_name

_CONVOLUTION = re.compile(r"torch\.nn\.Conv(Transpose)?[123]d")
_NORM = re.compile(r"torch\.nn\.(BatchNorm[123]d|SyncBatchNorm|InstanceNorm[123]d)")
_BIAS_AT = 7  # its place among the arguments of a convolution


class BiasBeforeNorm(Rewrite):
    id = "bias-before-norm"
    numerics = Numerics.STATISTICAL
    cost = Cost.SWITCH

    def recognise(self, function: Function, seen: Seen) -> Iterable[Site]:
        written = [each.args for each in calls(function, "torch.nn.Sequential")]
        for parts in (*written, *(each.elts for each in _lists(function))):
            for first, second in pairwise(parts):
                if not isinstance(first, ast.Call) or not isinstance(second, ast.Call):
                    continue
                names = [full_name(function.module, each.func) for each in (first, second)]
                given = {each.arg for each in first.keywords}
                has_bias = not given & {"bias", None} and len(first.args) <= _BIAS_AT
                starred = any(isinstance(each, ast.Starred) for each in first.args)
                if (
                    _CONVOLUTION.fullmatch(names[0])
                    and _NORM.fullmatch(names[1])
                    and has_bias
                    and not starred
                ):
                    yield Site(
                        first, {"call": function.text(first), "norm": function.text(second.func)}, advice=True
                    )

    def rewrite(self, function: Function, site: Site, seen: Seen) -> tuple[Edit, ...]:
        call = site.node
        assert isinstance(call, ast.Call)
        last = [*call.args, *call.keywords][-1]
        end = function.span(last)[1]
        return (Edit(end, end, ", bias=False"),)


def _lists(function: Function) -> Iterable[ast.List]:
    """Lists of layers, as they are handed to Sequential with a star or returned."""
    return (each for each in function.walk() if isinstance(each, ast.List))
