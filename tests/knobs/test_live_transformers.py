"""Knobs that a model of Hugging Face has functions of its own for, switched between two steps."""

from __future__ import annotations

import warnings

import pytest
import torch

from hotlap.knobs.grad_checkpointing import GradCheckpointing
from hotlap.knobs.sdpa import Sdpa
from hotlap.ports.target import Model

transformers = pytest.importorskip("transformers")

TOKENS = torch.arange(24).reshape(2, 12) % 40


def network():
    torch.manual_seed(0)
    words = {"vocab_size": 40, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(**words, **off, bos_token_id=0, eos_token_id=0)
    config._attn_implementation = "eager"
    return transformers.GPT2LMHeadModel(config)


def attributes(net):
    return {
        name: ({key: each for key, each in vars(part).items() if key.startswith(("_gradient", "gradient", "_require"))},
               len(part._forward_hooks), sorted(vars(part)))
        for name, part in net.named_modules()
    }  # fmt: skip


def steps(net, optimizer, count=5):
    losses = []
    for _ in range(count):
        loss = net(input_ids=TOKENS, labels=TOKENS, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def in_turn(knob):
    """Losses, and what the module looks like, with the knob in place every other five steps."""
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses, looks = steps(net, optimizer), [attributes(net)]
    for _ in range(2):
        undo = knob.apply(Model(net, None, None), True)
        losses += steps(net, optimizer)
        undo()
        looks.append(attributes(net))
        losses += steps(net, optimizer)
    return net, losses, looks


def alone():
    net = network()
    return steps(net, torch.optim.AdamW(net.parameters(), lr=0.01), 25)


def test_checkpointing_comes_and_goes():
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # advice to a script that never called it
        net, losses, looks = in_turn(GradCheckpointing())
    assert looks[0] == looks[1] == looks[2]
    assert losses == alone(), "bit-equal all the way"
    assert not net.is_activation_checkpointing if hasattr(net, "is_activation_checkpointing") else True


def test_checkpointing_really_comes():
    net = network()
    undo = GradCheckpointing().apply(Model(net, None, None), True)
    assert any(getattr(each, "gradient_checkpointing", False) for each in net.modules())
    undo()
    assert not any(getattr(each, "gradient_checkpointing", False) for each in net.modules())


def test_attention_comes_and_goes():
    net, losses, looks = in_turn(Sdpa())
    assert looks[0] == looks[1] == looks[2]
    assert net.config._attn_implementation == "eager"
    assert losses == pytest.approx(alone(), abs=1e-3)


def test_parts_with_another_attention_keep_it():
    net = network()
    net.transformer.config = type(net.config)(**net.config.to_dict())
    net.transformer.config._attn_implementation = "sdpa"
    undo = Sdpa().apply(Model(net, None, None), True)
    assert net.config._attn_implementation == "sdpa"
    undo()
    assert (net.config._attn_implementation, net.transformer.config._attn_implementation) == ("eager", "sdpa")
