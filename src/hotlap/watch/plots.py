"""The picture of a posterior: what z says over the steps, and every dimension at the last look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hotlap.watch.collapse import ACTIVE_VARIANCE, Posterior, State, Verdict

_COLOURS = {State.HEALTHY: "tab:green", State.COLLAPSING: "tab:orange", State.COLLAPSED: "tab:red"}


def posterior_figure(history: Sequence[Posterior], verdict: Verdict) -> Any:
    """A figure of matplotlib, made without pyplot: the script's own figures and backend are left alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    (information, units), (divergence, variances) = figure.subplots(2, 2)
    _draw_information(information, history)
    _draw_units(units, history)
    last = history[-1]
    divergence.bar(range(len(last.kl)), sorted(last.kl, reverse=True), width=1.0)
    divergence.set_title(f"KL per dimension, sorted, step {last.step}", fontsize="small")
    ordered = sorted(last.variances, reverse=True)
    variances.bar(range(len(ordered)), [max(each, 1e-6) for each in ordered], width=1.0)
    variances.set_yscale("log")
    variances.axhline(ACTIVE_VARIANCE, color="k", linestyle=":", linewidth=1)
    variances.set_title("variance of the posterior mean, sorted", fontsize="small")
    figure.suptitle(f"{verdict.state}: {verdict.reason}", color=_COLOURS[verdict.state], fontsize="medium")
    return figure


def _draw_information(axes: Any, history: Sequence[Posterior]) -> None:
    steps = [each.step for each in history]
    axes.plot(steps, [each.mutual_information for each in history], label="mutual information (nats)")
    axes.plot(steps, [each.ceiling for each in history], "k:", linewidth=1, label="ln(rows)")
    axes.legend(fontsize="small", loc="lower left")
    axes.set_ylim(bottom=0.0)
    seen = [(each.step, each.gap) for each in history if each.gap is not None]
    if seen:
        beside = axes.twinx()
        beside.plot(*zip(*seen, strict=True), color="tab:orange", label="loss gap under shuffled z")
        beside.legend(fontsize="small", loc="lower right")


def _draw_units(axes: Any, history: Sequence[Posterior]) -> None:
    steps = [each.step for each in history]
    axes.plot(steps, [each.active for each in history], label="active units")
    axes.plot(steps, [each.total_kl for each in history], label="KL (nats)")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize="small")


def write_png(figure: Any, path: Path) -> None:
    """Whole or not at all: a reader may look at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    figure.savefig(draft, format="png", dpi=90)
    draft.replace(path)
