"""The only wiring: reads like the arrow. script -> probe -> Timeline -> Diagnosis -> report.

What runs and watches a job is imported where it starts: a stored run is shown without it, and at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.cost.roofline import with_given
from hotlap.errors import FactError, UsageError
from hotlap.facts import codec, private
from hotlap.facts.arrow import read_timelines, write_timelines
from hotlap.facts.diagnosis import Diagnosis
from hotlap.facts.experiment import Experiments
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.timeline import Ending, Timeline
from hotlap.launch import runfolder
from hotlap.probe import boundary
from hotlap.report.view import profile_view

if TYPE_CHECKING:
    from hotlap.export.sending import Target
    from hotlap.facts.plan import Plan
    from hotlap.host.looks import LookRecord
    from hotlap.launch.planned import Ran
    from hotlap.launch.process import Outcome
    from hotlap.ports.knob import Knob, Numerics
    from hotlap.propose.presets import Proposal
    from hotlap.watch.live.reader import LiveReader
from hotlap.diagnose.rewrites import recognised
from hotlap.diagnose.unmatched import unmatched
from hotlap.facts.rewrite import Recognition

REPORT, LOG, EXPERIMENTS, REWRITES = "report.html", "log.txt", "experiments.json", "rewrites.json"
_DRAWN = ("profile", "tuning", "comparison")  # kinds of views that a renderer draws
_PHASES = ("ops",)  # of the probe, after the experiments: the operator table
Say = Callable[[str], None]


@dataclass(frozen=True)
class Profile:
    """What a profile brought. Without a training step there is no view, and `reason` says why."""

    run: Path
    exit_code: int
    view: Mapping[str, Any] | None
    reason: str = ""
    remedy: str = ""


def profile(
    job: Job,
    steps: int | None,
    out: str | None,
    say: Say,
    *,
    few: tuple[int, float] | None = None,
    experiments_s: float = 0.0,
    peak_flops: float | None = None,
    quiet_stdout: bool = False,
) -> Profile:
    """Run the job under the probe and diagnose what was seen.

    `steps` None lets it run to its end; the `few` are enough where they took so many seconds. Experiments follow the
    window of measured steps, for at most `experiments_s` seconds (0: none). `peak_flops` is the device's peak, where
    the user gives it.
    """
    from hotlap.experiments.leads import Lead
    from hotlap.host.machine import inspect_host
    from hotlap.launch.environment import ORIGIN, child_environment
    from hotlap.launch.observe import Observer
    from hotlap.launch.process import Signals, run_job
    from hotlap.stats.robust import steady_from

    host = inspect_host(job=job)
    run = runfolder.create_run(job.name, out)
    folder = runfolder.probe_folder(run)
    tries = experiments_s > 0
    environment = child_environment(folder, _PHASES if tries else (), experiments=tries)
    origin = int(environment[ORIGIN])
    codec.write_json(run / "job.json", job)
    codec.write_json(run / "host.json", host)
    observer = Observer(folder, steps, steady_from, say, few=few)

    def tick(pid: int) -> bool:
        goes_on = observer.tick(pid)
        return (experiments is None or experiments.tick()) and goes_on

    experiments = Lead(host, experiments_s, say)(folder, observer, origin) if tries else None
    with Signals() as signals:
        try:
            outcome = run_job(
                job,
                environment,
                tick,
                signals,
                quiet_stdout=quiet_stdout,
                ends_with_us=steps is not None,
            )
        except UsageError:
            runfolder.remove_run(run)
            raise
        finally:
            observer.close()
        found = experiments.results() if experiments else None
        ending = Ending.WINDOW if observer.gave_up else outcome.ending
        return _kept(
            run, job, host, outcome, found,
            lambda: collect(folder, outcome, ending, origin, observer.looks, peak_flops),
        )  # fmt: skip


def _kept(
    run: Path,
    job: Job,
    host: Host,
    outcome: Outcome,
    experiments: Experiments | None,
    seen: Callable[[], tuple[Timeline, ...]],
) -> Profile:
    """The job is over: whatever goes wrong from here on, its exit code is still the user's to have."""
    try:
        if experiments is not None:
            codec.write_json(run / EXPERIMENTS, experiments)
        return _conclude(run, job, host, outcome, seen())
    except OSError as fault:
        boundary.attempt(_write_log, run, (), _not_kept(run, fault))
        return Profile(run, outcome.exit_code, None, _not_kept(run, fault), ROOM)
    except Exception as fault:
        boundary.attempt(_write_log, run, (), f"{type(fault).__name__}: {fault}")
        reason = f"what was recorded could not be read: {type(fault).__name__}: {fault}."
        return Profile(run, outcome.exit_code, None, reason, f"please report it, with the files in {run}")


def concluded(run: Path, job: Job, host: Host, outcome: Outcome, origin: int, looks: LookRecord) -> Profile:
    """Of what ran in this process, and is over."""
    folder = runfolder.probe_folder(run)
    return _kept(
        run, job, host, outcome, None, lambda: collect(folder, outcome, outcome.ending, origin, looks)
    )


def _not_kept(run: Path, fault: OSError) -> str:
    if not run.is_dir():
        return f"the run folder {run} was deleted while the job ran: nothing of what was recorded is left."
    return f"what was recorded could not be written to {run}: {fault.strerror or fault}."


def run(
    job: Job,
    plan: Plan,
    out: str | None,
    say: Say,
    *,
    options: Mapping[str, Any],
    quiet_stdout: bool = False,
    watch: bool = False,
) -> tuple[Path, Ran]:
    """Train under a plan: the run folder, and how it went. With `watch`, monitors and the probe stand beside it."""
    from hotlap.host.machine import inspect_host
    from hotlap.launch.planned import keep, run_planned

    folder = runfolder.create_run(job.name, out)
    codec.write_json(folder / "job.json", job)
    codec.write_json(folder / "host.json", inspect_host(job=job))
    try:
        monitors = "hotlap.watch.beside" if watch else ""
        ran = run_planned(job, plan, folder, options, say, quiet_stdout=quiet_stdout, watch=monitors)
    except UsageError:
        runfolder.remove_run(folder)
        raise
    try:
        keep(ran, plan, folder)
    except OSError as fault:  # the job is over: its exit code is still the user's to have
        say(f"hotlap: {_not_kept(folder, fault)}\n  -> {ROOM}")
    keep_last_look(folder)
    runfolder.remove_probe_files(folder)
    return folder, ran


def live_reader(run: Path) -> LiveReader:
    """Looks at a running job, or at one that has ended, through its run folder."""
    from hotlap.timeline.fold import fold
    from hotlap.watch.live.reader import LiveReader

    return LiveReader(run, fold)


def keep_last_look(run: Path) -> None:
    """What a live view shows of a job that has ended."""

    def look() -> None:
        codec.write_json(run / runfolder.LAST_LOOK, live_reader(run).look(ended=True))

    boundary.attempt(look)


def propose(
    preset: str, profile: Path | None, knobs: Mapping[str, Knob], allowed: Collection[Numerics]
) -> Proposal:
    """A preset's plan, from this host and from a stored profile of the job."""
    from hotlap.host.machine import inspect_host
    from hotlap.plan.catalogue import checked
    from hotlap.propose.presets import propose as proposed

    seen = _stored_timelines(profile) if profile else ()
    proposal = proposed(
        preset,
        inspect_host(),
        {key: knob.numerics for key, knob in knobs.items()},
        allowed,
        seen[0] if seen else None,
        _stored_diagnosis(profile) if profile else None,
    )
    return replace(proposal, plan=replace(proposal.plan, settings=checked(proposal.plan.settings, knobs)))


def ask(job: Job, knobs: Mapping[str, Knob]) -> tuple[list[dict[str, Any]], str]:
    """Which knobs could act on a job, one answer each; and where it ended early, or made no step, the reason."""
    from hotlap.launch.planned import ask as run_asking
    from hotlap.plan.record import answer
    from hotlap.propose.presets import asking_plan

    outcome, records = run_asking(job, asking_plan(knobs))
    if not records:
        return [], f"no training step was seen; the script ended with exit code {outcome.exit_code}."
    fitted = records[0].fitted
    told = [answer(knobs[key], [each for each in fitted if each.knob == key]) for key in sorted(knobs)]
    early = "" if records[0].steps else "the script ended before its first optimizer step."
    return told, early


def run_alone(job: Job) -> int:
    """Run the job without a probe; its exit code, as a shell would show it."""
    from hotlap.launch.process import Signals, run_job

    with Signals() as signals:
        return run_job(job, os.environ, lambda _: True, signals).exit_code


def view_of(run: Path, *, again: bool = False) -> Mapping[str, Any]:
    """The view of a stored run; `again` repeats the diagnosis with today's rules."""
    job, host = codec.read_json(run / "job.json", Job), codec.read_json(run / "host.json", Host)
    seen = _stored_timelines(run)
    diagnosis = _diagnosed(run, seen, host) if again else _stored_diagnosis(run)
    view = profile_view(
        job, host, seen, diagnosis, str(run), _stored_experiments(run), rewrites=stored_rewrites(run)
    )
    if again and (run / REPORT).exists():
        write_report(run, view)  # the old one tells the old diagnosis
    return view


def write_report(run: Path, view: Mapping[str, Any], lang: str = "en") -> Path:
    """The HTML report, in the run's folder."""
    from hotlap.report.renderers.html import Html

    page = Html().render(view, lang)
    with _writing(run):
        codec.write_text(run / REPORT, page)
    return run / REPORT


def _stored_timelines(run: Path) -> tuple[Timeline, ...]:
    path = run / "timeline.arrow"
    if not path.exists() and (run / runfolder.APPLIED).exists():
        raise FactError(
            f"{run} is of hotlap run, which records no timeline.", "profile the job: hotlap profile ..."
        )
    reason = "" if path.exists() else " ".join(lines_of(run / LOG))
    if reason:
        raise FactError(f"{run} holds no timeline: {reason}", "record the run again: hotlap profile ...")
    seen = read_timelines(path)
    if not any(each.steady_steps for each in seen):
        raise FactError(
            f"{run} holds no steady step: there is nothing to diagnose.", "profile more steps: --steps 200"
        )
    return seen


def _stored_diagnosis(run: Path) -> Diagnosis:
    try:
        found: Diagnosis = codec.read_json(run / "diagnosis.json", Diagnosis)
    except FactError as error:
        raise FactError(error.what, f"make it again from the timeline: hotlap diagnose {run}") from None
    return found


def _stored_experiments(run: Path) -> Experiments | None:
    """None for runs without experiments, and for those stored before there were any."""
    path = run / EXPERIMENTS
    found: Experiments | None = codec.read_json(path, Experiments) if path.exists() else None
    return found


def _diagnosed(run: Path, seen: tuple[Timeline, ...], host: Host) -> Diagnosis:
    from hotlap.diagnose.run import diagnose
    from hotlap.plan.catalogue import all_knobs

    diagnosis = diagnose(seen, host, all_knobs().values(), _stored_experiments(run))
    with _writing(run):
        codec.write_json(run / "diagnosis.json", diagnosis)
    return diagnosis


@contextmanager
def _writing(run: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FactError(
            f"{run} cannot be written: {error.strerror}.", "copy the run folder elsewhere"
        ) from None


def _conclude(run: Path, job: Job, host: Host, outcome: Outcome, seen: tuple[Timeline, ...]) -> Profile:
    reason, remedy = ("", "") if seen else why_nothing(runfolder.probe_folder(run), outcome)
    _write_log(run, seen, reason)
    runfolder.keep_trace(run, [each.pid for each in seen])
    view = _report(run, job, host, seen) if seen else None
    keep_last_look(run)
    runfolder.remove_probe_files(run)
    return Profile(run, _exit_code(outcome, seen), view, reason, remedy)


def _report(run: Path, job: Job, host: Host, seen: tuple[Timeline, ...]) -> Mapping[str, Any]:
    write_timelines(run / "timeline.arrow", seen)
    diagnosis = _diagnosed(run, seen, host)
    experiments = _stored_experiments(run)
    rewrites = keep_rewrites(run, seen, job.cwd, experiments)
    view = profile_view(job, host, seen, diagnosis, str(run), experiments, rewrites=rewrites)
    try:
        write_report(run, view)
    except Exception as fault:  # what was measured, maybe for hours, is not lost over its picture
        with open(run / LOG, "a", encoding="utf-8", opener=private.opener) as log:
            log.write(f"{REPORT} was not written: {fault!r}\n")
    return view


def collect(
    folder: Path,
    outcome: Outcome,
    ending: Ending,
    origin: int,
    looks: LookRecord,
    peak_flops: float | None = None,
) -> tuple[Timeline, ...]:
    """The timelines of a job that has ended, one for each rank. `peak_flops` is given by the user, or None."""
    from hotlap.timeline.gather import timelines_in

    seen = timelines_in(folder, outcome.ended_at, ending, origin, looks)
    return (
        seen
        if peak_flops is None
        else tuple(replace(each, roof=with_given(each.roof, peak_flops)) for each in seen)
    )


def _exit_code(outcome: Outcome, seen: tuple[Timeline, ...]) -> int:
    """The script's own; one that had to be ended by force after its window was done is no failure of the script."""
    ended_by_hotlap = any(each.ending is Ending.WINDOW for each in seen)
    return 0 if ended_by_hotlap and not outcome.interrupted else outcome.exit_code


def _write_log(run: Path, seen: tuple[Timeline, ...], reason: str) -> None:
    faults = [
        *boundary.faults,
        *(f"rank {each.rank}: {fault}" for each in seen for fault in each.probe.faults),
    ]
    codec.write_text(run / LOG, "\n".join([*faults, *([reason] if reason else [])]) + "\n")


# Why a job brought no profile.


ROOM = "see that the folder stays and has room, or choose another with --out DIR"


def why_nothing(folder: Path, outcome: Outcome) -> tuple[str, str]:
    """What stood between the job and a profile, and one remedy."""
    from hotlap.launch.bootstrap import SEEN

    if not folder.is_dir():
        return f"the run folder {folder.parent} was deleted while the job ran.", "profile it again"
    full = _write_fault(folder)
    if full:
        return f"what the probe saw could not be written to {folder.parent}: {full}.", ROOM
    seen = [json.loads(line) for line in lines_of(folder / SEEN)]
    if outcome.interrupted:
        return "the job was interrupted before its first training step.", "let it run a little longer"
    if not seen:
        return (
            "no Python process of this command could be reached.",
            "is it a Python program, started without -I, -E and -S, with the environment passed on?",
        )
    if not any(each["torch"] for each in seen):
        return "the command never imported torch.", "profile the script that trains"
    if outcome.exit_code:
        return (
            f"the job ended with exit code {outcome.exit_code} before its first training step.",
            "its own message is above; does it run without hotlap?",
        )
    return "no training step was seen: nothing called backward().", "profile the script that trains"


def _write_fault(folder: Path) -> str:
    """Why nothing can be written there; the probe in the job cannot leave word of it, so it is tried again here."""
    trial = folder / ".trial.json"
    try:
        trial.write_bytes(bytes(1 << 16))
    except OSError as fault:
        return fault.strerror or str(fault)
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)
    return ""


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def export(
    view: Mapping[str, Any], folder: Path, targets: Sequence[Target], say: Callable[[str], None]
) -> None:
    """After the job: whatever goes wrong is reported, and changes neither the run nor the exit code."""
    if targets and boundary.attempt(_export, view, folder, targets, say) is None:
        say(f"not exported: {boundary.faults[-1]}")


def _export(
    view: Mapping[str, Any], folder: Path, targets: Sequence[Target], say: Callable[[str], None]
) -> bool:
    from hotlap.export.sending import parcel_of, send
    from hotlap.report.renderers.markdown import Markdown

    summary = Markdown().render(view) if view.get("kind", "profile") in _DRAWN else ""
    page = folder / REPORT
    send(parcel_of(view, folder, summary=summary, report=str(page) if page.is_file() else ""), targets, say)
    return True


def keep_rewrites(
    run: Path, timelines: Sequence[Timeline], folder: str, experiments: Experiments | None
) -> Recognition:
    """What is recognised now, into the run folder: the source may be another one later."""
    patterns = boundary.attempt(recognised, timelines, folder, experiments) or ()
    others = boundary.attempt(unmatched, timelines, folder, patterns) or ()
    found = Recognition(patterns, others)
    if found.found or found.others:
        codec.write_json(run / REWRITES, found)
    return found


def stored_rewrites(run: Path) -> Recognition | None:
    """None where nothing was recognised."""
    path = run / REWRITES
    found: Recognition | None = codec.read_json(path, Recognition) if path.exists() else None
    return found
