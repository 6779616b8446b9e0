"""Compute attention in one fused operator.

What it does
    Switches a Hugging Face model from its eager attention to `scaled_dot_product_attention`, which never stores the
    matrix of scores.
When it helps
    Long sequences: the scores of eager attention grow with the square of the length.
What it costs
    Attention weights are no longer returned (`output_attentions`).
Numerics
    The same sums in another order: rounding. With dropout on the scores other random masks are drawn, which only
    statistics can tell from a fault.
"""

from __future__ import annotations

import weakref
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Model, Seam, Undo
from hotlap.ports.values import Flag

_SDPA = "sdpa"
_DROPOUTS = ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob")


class Sdpa(Knob):
    id = "sdpa"
    relieves = frozenset({Cause.UNCOMPILED})
    seam = Seam.MODEL
    numerics = Numerics.ROUNDING
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        """Where attention was seen to be computed by hand: a softmax among the operators, and no fused attention."""
        names = [each.name for each in (timeline.ops.top if timeline.ops else ())]
        # A log-softmax is a loss's.
        softmax = any("softmax" in name and "log_softmax" not in name for name in names)
        return (True,) if softmax and not any("attention" in name for name in names) else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def numerics_at(self, target: Any, setting: Any) -> Numerics:
        models = [each for each in target.module.modules() if hasattr(each, "set_attn_implementation")]
        drops = any(getattr(each.config, name, 0.0) for each in models[:1] for name in _DROPOUTS)
        return Numerics.STATISTICAL if drops else Numerics.ROUNDING

    def apply(self, target: Model, setting: bool) -> Undo:
        models = [each for each in target.module.modules() if hasattr(each, "set_attn_implementation")]
        if not models:
            raise CannotActError(_reason(target.module))
        model = models[0]
        before = model.config._attn_implementation
        wanted = _SDPA if setting else "eager"
        if before == wanted:
            raise CannotActError(f"its attention is {wanted} already")
        if getattr(model.config, "output_attentions", False) and setting:
            raise CannotActError("the script asks for attention weights, which only eager attention returns")
        parts = _attention_of_parts(model)
        model.set_attn_implementation(wanted)
        if model.config._attn_implementation != wanted:
            raise CannotActError(f"{type(model).__name__} has one attention only, {before}")
        held = weakref.ref(model)

        def undo() -> None:
            left = held()
            if left is not None:
                left.set_attn_implementation(before)
                for config, own in parts:
                    config._attn_implementation = own

        return undo


def _attention_of_parts(model: Any) -> list[tuple[Any, Any]]:
    """Configurations of a model's parts, outer ones first, with the attention of each: they need not be alike."""
    configs = [each.config for each in model.modules() if hasattr(each, "config")]
    once = {id(each): each for each in configs if hasattr(each, "_attn_implementation")}
    return [(each, each._attn_implementation) for each in once.values()]


def _reason(module: Any) -> str:
    from torch import nn

    layers = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    if any(isinstance(each, layers) for each in module.modules()):
        return "torch's transformer layers use scaled_dot_product_attention already"
    if any(isinstance(each, nn.MultiheadAttention) for each in module.modules()):
        return (
            "nn.MultiheadAttention does so wherever the script passes need_weights=False, and whether it needs the "
            "weights only the script knows"
        )
    return "it is no Hugging Face model, and attention that a script writes out itself cannot be replaced from outside"
