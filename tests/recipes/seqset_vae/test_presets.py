"""Which settings hold: what is given wins over a preset, a preset over the defaults."""

from __future__ import annotations

import pytest

from hotlap.watch import PosteriorMonitor
from hotlap_recipes.seqset_vae import BadInputError, train
from hotlap_recipes.seqset_vae.naive_monitor import NaiveMonitor
from hotlap_recipes.seqset_vae.presets import DEFAULTS, NAIVE, PRESETS


def monitor(*words):
    return train.make_callbacks(train.parse(words))[-1]


def test_the_flags_that_users_know():
    words = "--batch_size 4 --num_workers 8 --pin_memory --max_sequence_length 1000 --use_dynamic_padding "
    words += "--precision 16-mixed --gradient_accumulation_steps 2 --compile_model --fast_detection "
    options = train.parse(
        [*words.split(), "--disable_metrics_monitoring", "--devices", "2", "--preset", "max"]
    )
    assert (options.num_workers, options.pin_memory, options.precision) == (8, True, "16-mixed")
    assert (options.gradient_accumulation_steps, options.compile_model, options.devices) == (2, True, 2)


def test_without_a_word_the_defaults_hold():
    options = vars(train.parse([]))
    assert {name: options[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_sets_what_it_names_and_words_win(name):
    assert PRESETS[name].keys() <= DEFAULTS.keys()
    options = vars(train.parse(["--preset", name]))
    assert {key: options[key] for key in PRESETS[name]} == PRESETS[name]
    assert {key: options[key] for key in DEFAULTS.keys() - PRESETS[name].keys()} == {
        key: DEFAULTS[key] for key in DEFAULTS.keys() - PRESETS[name].keys()
    }
    words = ["--preset", name, "--batch_size", "3", "--no-use_dynamic_padding", "--size", "tiny"]
    options = vars(train.parse(words))
    assert (options["batch_size"], options["use_dynamic_padding"], options["size"]) == (3, False, "tiny")


def test_naive_can_be_improved_one_flag_at_a_time():
    options = vars(train.parse(["--naive"]))
    assert {name: options[name] for name in NAIVE} == NAIVE
    better = vars(train.parse(["--naive", "--use_dynamic_padding"]))
    assert {name for name in DEFAULTS if better[name] != options[name]} == {"use_dynamic_padding"}


def test_monitoring_flags_are_budgets():
    assert isinstance(monitor("--naive"), NaiveMonitor)
    shares = [
        monitor(*words).budget.share for words in ((), ("--fast_detection",), ("--naive", "--fast_detection"))
    ]
    assert shares == pytest.approx([0.01, 0.002, 0.002])
    assert monitor("--disable_metrics_monitoring").budget.share == 0.0
    assert isinstance(monitor("--preset", "memory"), PosteriorMonitor)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch_size", "0"], "--batch_size is 0"),
        (["--num_workers", "-1"], "--num_workers is -1"),
        (["--mode", "finetune"], "--checkpoint is None"),
    ],
)
def test_what_cannot_be_is_refused_with_the_value(words, message, capsys):
    with pytest.raises(BadInputError, match=message):
        train.parse(words)
    assert train.main(words) == 2
    assert message in capsys.readouterr().err
