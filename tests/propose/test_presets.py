"""Presets say what a host's and a job's facts carry, each line with its reason, and nothing that changes numbers
without the word for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Fix, Interval, Severity
from hotlap.facts.host import Gpu, Host
from hotlap.plan.catalogue import all_knobs, checked
from hotlap.ports.knob import Numerics
from hotlap.ports.values import Choice, Flag, Share, Values, Whole
from hotlap.propose.presets import PRESETS, asked_value, asking_plan, propose

GIB = 1 << 30
WITH_ALL = set(Numerics)
KNOBS = all_knobs()
NUMERICS = {
    "num-workers": Numerics.BITWISE,
    "persistent-workers": Numerics.BITWISE,
    "prefetch-factor": Numerics.BITWISE,
    "pin-memory": Numerics.BITWISE,
    "non-blocking": Numerics.BITWISE,
    "set-to-none": Numerics.BITWISE,
    "grad-checkpointing": Numerics.BITWISE,
    "log-every": Numerics.BITWISE,
    "precision": Numerics.ROUNDING,
    "compile": Numerics.ROUNDING,
    "tf32": Numerics.ROUNDING,
    "batch-size": Numerics.STATISTICAL,
}

CPU = Host(
    system="Linux",
    cpu="a CPU",
    cores=8,
    physical_cores=8,
    ram_bytes=32 * GIB,
    ram_free_bytes=24 * GIB,
    shm_bytes=8 * GIB,
    shm_free_bytes=8 * GIB,
    start_method="fork",
    compiler="/usr/bin/g++",
    python_headers=True,
    versions={"torch": "2.13", "triton": "3.5"},
)
AMPERE = Gpu("A100", 40 * GIB, (8, 0), bf16=True, tf32=True, tensor_cores=True)
TURING = Gpu("T4", 15 * GIB + GIB // 2, (7, 5), tensor_cores=True)
PASCAL = Gpu("GTX 1070", 8 * GIB, (6, 1))
GPU = replace(CPU, gpus=(AMPERE,))
WINDOWS = replace(GPU, system="Windows", shm_bytes=None, shm_free_bytes=None, start_method="spawn")
SMALL = replace(CPU, cores=2, ram_bytes=2 * GIB, ram_free_bytes=GIB)
HOSTS = {
    "cpu": CPU,
    "cpu-bf16": replace(CPU, cpu_bf16=True, cpu_amx=True),
    "small": SMALL,
    "no-shm": replace(CPU, shm_bytes=64 << 20, shm_free_bytes=64 << 20),
    "ampere": GPU,
    "turing": replace(CPU, gpus=(TURING,)),
    "pascal": replace(CPU, gpus=(PASCAL,)),
    "windows": WINDOWS,
    "two-gpus": replace(CPU, gpus=(AMPERE, TURING)),
    "no-compiler": replace(GPU, compiler=None),
}


def settings(preset, host, allowed=WITH_ALL, **facts):
    return propose(preset, host, NUMERICS, allowed, **facts).plan.settings


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_line_of_every_preset_is_one_that_its_knob_takes(preset, host):
    numerics = {key: knob.numerics for key, knob in KNOBS.items()}
    proposal = propose(preset, host, numerics, WITH_ALL)
    assert checked(proposal.plan.settings, KNOBS) == dict(proposal.plan.settings)
    assert set(proposal.plan.reasons) == set(proposal.plan.settings)
    assert all(proposal.plan.reasons.values())


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_what_changes_numbers_needs_the_word_for_it(preset, host):
    for allowed in ((), {Numerics.ROUNDING}, {Numerics.STATISTICAL}):
        proposal = propose(preset, host, NUMERICS, allowed)
        assert {NUMERICS[key] for key in proposal.plan.settings} <= {Numerics.BITWISE, *allowed}
        assert not set(proposal.left_out) & set(proposal.plan.settings)
        assert {*proposal.left_out, *proposal.plan.settings} == set(settings(preset, host))


@pytest.mark.parametrize("preset", PRESETS)
def test_without_a_gpu_nothing_is_set_for_one(preset):
    assert not {"pin-memory", "non-blocking", "tf32", "cudnn-benchmark"} & set(settings(preset, CPU))


def test_precision_is_what_the_device_computes_fast():
    precisions = {name: settings("speed", host).get("precision") for name, host in HOSTS.items()}
    assert precisions["ampere"] == precisions["cpu-bf16"] == "bf16-mixed"
    assert precisions["turing"] == "16-mixed"
    assert precisions["cpu"] is precisions["pascal"] is None


def test_workers_fit_the_cores_the_memory_and_the_system():
    workers = {name: settings("balanced", host).get("num-workers") for name, host in HOSTS.items()}
    assert workers["ampere"] == 7  # one core drives the GPU
    assert workers["two-gpus"] == 3  # and each of two ranks has half of them
    assert workers["cpu"] == 4  # the model computes on the other half
    assert workers["windows"] == 0
    assert workers["small"] is workers["no-shm"] is None
    tight = replace(GPU, ram_free_bytes=4 * GIB)
    assert settings("balanced", tight)["num-workers"] == 2
    assert settings("memory", GPU)["num-workers"] == 2


def test_what_hangs_on_workers_is_only_set_with_workers():
    for host in (WINDOWS, SMALL):
        assert not {"persistent-workers", "prefetch-factor"} & set(settings("speed", host))


def test_on_windows_the_ranks_of_a_trainer_are_spawned():
    two = replace(WINDOWS, gpus=(AMPERE, AMPERE), versions={"torch": "2.13", "lightning": "2.5"})
    numerics = {key: knob.numerics for key, knob in KNOBS.items()}
    assert propose("balanced", two, numerics).plan.settings["ddp-spawn"] is True
    for alone in (replace(two, gpus=(AMPERE,)), replace(two, system="Linux"), replace(two, versions={})):
        assert "ddp-spawn" not in propose("balanced", alone, numerics).plan.settings


def test_the_compiler_is_used_as_far_as_gpu_memory_goes():
    modes = {name: settings("speed", host).get("compile") for name, host in HOSTS.items()}
    assert (modes["ampere"], modes["turing"], modes["pascal"]) == (
        "max-autotune",
        "reduce-overhead",
        "default",
    )
    assert modes["two-gpus"] == "reduce-overhead"  # what fits on the smaller
    assert modes["no-compiler"] is None
    assert settings("speed", replace(GPU, versions={})).get("compile") is None
    assert "compile" not in settings("balanced", GPU)


def test_memory_is_given_time_for_only_where_it_is_short():
    assert settings("memory", HOSTS["turing"])["grad-checkpointing"] is True
    assert "grad-checkpointing" not in settings("memory", GPU)
    assert "grad-checkpointing" not in settings("speed", HOSTS["pascal"])


def test_debugging_needs_one_process_and_tells_more_where_there_is_a_trainer():
    assert settings("debug", CPU) == {"num-workers": 0}
    assert settings("debug", replace(CPU, versions={"lightning": "2.5"}))["log-every"] == 1


def test_what_a_profile_found_outweighs_what_the_host_suggests():
    def finding(cause, severity, *fixes):
        return Finding(cause, severity, 0.5, fixes=fixes)

    diagnosis = Diagnosis(
        (
            finding(
                Cause.WORKERS_TOO_FEW,
                Severity.CRITICAL,
                Fix("num-workers", "6", interval=Interval(0.5, 1.0), measured_gain=0.8),
                Fix("pin-memory", "true", measured_gain=0.1),
            ),
            finding(Cause.BATCH_TOO_SMALL, Severity.WARNING, Fix("batch-size", "64", measured_gain=0.3)),
            finding(Cause.UNCOMPILED, Severity.NOTE, Fix("compile", "default", measured_gain=0.3)),
            finding(Cause.GC_PAUSES, Severity.WARNING, Fix("set-to-none", "false", measured_gain=0.001)),
        )
    )
    proposal = propose("balanced", CPU, NUMERICS, (), diagnosis=diagnosis)
    assert proposal.plan.settings["num-workers"] == "6"
    assert proposal.plan.reasons["num-workers"] == (
        "the profile found workers-too-few: 80 % more throughput measured"
    )
    assert "pin-memory" not in proposal.plan.settings
    assert proposal.plan.settings["set-to-none"] is True
    assert proposal.left_out["batch-size"] is Numerics.STATISTICAL
    assert "compile" not in {*proposal.left_out, *proposal.plan.settings}


def test_one_setting_of_every_knob_is_asked():
    assert asked_value(Flag()) is True
    assert asked_value(Choice(("32", "16-mixed", "bf16-mixed"))) == "bf16-mixed"
    assert asked_value(Choice(("linear", "sqrt", "off"))) == "sqrt"
    assert asked_value(Whole(0, 64)) == 2
    assert asked_value(Whole(5, 64)) == 5
    assert asked_value(Share()) == 0.5
    assert asked_value(type("Own", (Values,), {"shown": "", "read": None})()) is None
    plan = asking_plan(KNOBS)
    for key, value in plan.settings.items():
        assert KNOBS[key].values.read(value) == value
