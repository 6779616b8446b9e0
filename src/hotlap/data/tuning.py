"""Chooses how a loader runs, from what its batches cost and how long its consumer waits.

A strategy is a generator: it asks for a stretch of batches under a setting, is sent what was seen, and goes on.
Every decision is told in a sentence with the figures that led to it.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

from hotlap.data.budget import Budget
from hotlap.data.tuner import IN_PROCESS, MANY, PROCESSES, THREADS, Setting, Story, Strategy, Trial, Window
from hotlap.units import duration, rate, share, size

WORTH = 1.1  # workers must promise this much before they are tried, and must then be measured to bring it
BETTER = 1.05  # what more workers must be measured to bring
GIL_FREE = 1.3  # two threads that are so much faster than one do let go of the GIL
WAITS = 0.03  # share of its time that a consumer may wait without anything being done about it
CHEAP = 0.25  # batches that cost so much less than at first (a cache has filled) are looked at anew
HAND_OVER_S = 2e-4  # of a batch from a worker, about
MOST = {THREADS: 32, PROCESSES: 16}
DEEPEST = 64  # batches ahead
LOOK_AGAIN = 32  # batches until it is looked again whether workers are worth a try
FIRST_REST, LONGEST_REST = 4096, 16384  # batches until they are tried again, after they have not paid
OTHER = 2.0  # batches that cost so many times more or less are others than before ...
CHANGES = 3  # ... and if they are in so many windows in a row, workers are tried at once
LONGEST_PAUSE = 256  # windows until more workers are tried again
HELD = 0.4  # of the consumer's time: batches are held back so long to see whether it notices
SLACK = 0.05  # of the lap: a consumer that takes less has no time in which a delay could hide
GIVES_WAY = 0.5  # of a delay: if so much of it is made up for, it is hidden
HOLDS = 32  # batches, every second of them held back
REGRETS = 5  # windows in a row, before it is believed: batches that cost unevenly are cheap for a while too


@dataclass
class Limits:
    """What may be chosen. `no_threads`, `no_processes`: why not, or ""; found out as it goes."""

    budget: Budget
    no_threads: str = ""
    no_processes: str = ""
    workers: int | None = None  # fixed by the user
    ahead: int | None = None


def chosen_by_user(setting: Setting, limits: Limits, story: Story) -> Strategy:
    """The number of workers is given; only how far they run ahead is tuned, unless that is given too."""
    story.tell(f"Batches are fetched by {setting}, as asked for.")
    while True:
        seen = yield Trial(setting, max(16, setting.ahead))
        if limits.ahead is None and setting.way != IN_PROCESS:
            setting = deepened(setting, seen, limits, story)


def measured(limits: Limits, story: Story) -> Strategy:
    """Nothing is given: look at the items first, then take the way that suits them, then as many as pay."""
    look, rest, was_hidden = (yield Trial(Setting(IN_PROCESS), 4)), FIRST_REST, False
    while True:
        story.tell(
            f"A batch takes {duration(look.wall)} to fetch, {share(look.cpu_share)} of that time it needs a core, and "
            f"the consumer takes {duration(look.gap)} for it."
        )
        if not _is_worth_it(look, limits, story):
            look = yield Trial(Setting(IN_PROCESS), LOOK_AGAIN)
            continue
        hidden = yield from _is_hidden(look, story)
        if was_hidden and not hidden:  # one look may err, and to try workers costs the consumer time
            look = yield Trial(Setting(IN_PROCESS), HOLDS)
            hidden = yield from _is_hidden(look, story)
        was_hidden = hidden
        if not hidden:
            for way in (THREADS, PROCESSES):
                if (yield from _suits(way, look, limits, story)):
                    yield from _adjusted(_start(way, look, limits), look, limits, story)
        look = yield from _rested(look, rest)
        rest = min(LONGEST_REST, 2 * rest)


def _rested(before: Window, batches: int) -> Generator[Trial, Window, Window]:
    """Go on in the consumer's own thread; earlier than planned only if batches or consumer are not what they were."""
    look, changed, passed = before, 0, 0
    while passed < batches and changed < CHANGES:
        look = yield Trial(Setting(IN_PROCESS), LOOK_AGAIN)
        changed = changed + 1 if _is_other(look, before) else 0
        passed += look.batches
    return look


def _is_other(look: Window, before: Window) -> bool:
    dearer_or_cheaper = not 1 / OTHER < look.wall / max(before.wall, 1e-9) < OTHER
    return dearer_or_cheaper or look.gap > OTHER * max(before.gap, look.wall)


def _is_worth_it(look: Window, limits: Limits, story: Story) -> bool:
    gain = (look.wall + look.gap) / max(look.gap, look.wall / _most(PROCESSES, look, limits), HAND_OVER_S)
    if limits.no_threads and limits.no_processes:
        reason = f"{limits.no_processes}, and {limits.no_threads}"
    elif gain < WORTH:
        reason = f"workers could bring {share(max(0.0, gain - 1))} at the most"
    else:
        return True
    story.tell(f"Batches are fetched in the consumer's own thread: {reason}.")
    return False


def _is_hidden(look: Window, story: Story) -> Generator[Trial, Window, bool]:
    """A device that has work queued up does not notice that the host fetches a batch: then workers bring nothing."""
    if look.gap < SLACK * look.lap:
        return False
    hold = HELD * look.gap
    held = yield Trial(Setting(IN_PROCESS), HOLDS, hold_s=hold)
    if held.gives_way < GIVES_WAY:
        return False
    story.tell(
        f"Batches are fetched in the consumer's own thread: when every second one was held back by {duration(hold)}, "
        f"the consumer made up for {share(min(1.0, held.gives_way))} of the delay, so fetching is hidden already."
    )
    return True


def _suits(way: str, look: Window, limits: Limits, story: Story) -> Generator[Trial, Window, bool]:
    refused = limits.no_threads if way == THREADS else limits.no_processes
    if refused:
        story.tell(f"{'Threads' if way == THREADS else 'Worker processes'} are left out: {refused}.")
        return False
    return way == PROCESSES or (yield from _threads_help(look, story))


def _threads_help(look: Window, story: Story) -> Generator[Trial, Window, bool]:
    duo = yield Trial(Setting(THREADS, 2, 4), 16, brief=not look.uneven)
    if not duo.batches:
        return False  # taken back meanwhile, and told
    faster = 2 * look.wall / duo.wall if duo.wall else 0.0
    if look.cpu_share > 0.5:
        # a thread that waits for the GIL needs no core: true also when the machine got quicker
        faster = min(faster, 2 * duo.cpu_share / look.cpu_share)
    if duo.scarce and duo.waiting > WAITS:
        # nobody but the threads held batches up; to wait for the GIL before a batch begins is in no batch's time
        faster = min(faster, duo.rate * look.wall)
    verdict = "they let go of the GIL" if faster >= GIL_FREE else "they hold the GIL"
    story.tell(f"Two threads fetch {faster:.2f}x as much as one: items are such that {verdict}.")
    return faster >= GIL_FREE


def _most(way: str, look: Window, limits: Limits) -> int:
    """As many as the cores can feed: more than cores where items wait for something else than the CPU."""
    fed = round(limits.budget.cores / max(look.cpu_share, 0.01))
    room = limits.budget.ram // max(1, 2 * look.size)
    return max(1, min(fed, MOST[way], room))


def _start(way: str, look: Window, limits: Limits) -> Setting:
    most = _most(way, look, limits)
    needed = math.ceil(1.25 * look.wall / look.gap) if look.gap > look.wall / most else most
    least = 2 if look.uneven else 1  # so that a long batch does not hold up the others
    return _sized(way, min(most, max(least, needed)), look, limits)


def _sized(way: str, workers: int, look: Window, limits: Limits) -> Setting:
    ahead = max(workers + 2, min(2 * workers, workers + 4))
    if look.uneven:  # as many as are consumed while the longest is fetched
        ahead = max(ahead, math.ceil(1.5 * look.longest_s / max(look.gap, look.wall / workers)))
    return Setting(way, workers, max(limits.ahead or _within(ahead, look, limits), workers))


def _within(ahead: int, look: Window, limits: Limits) -> int:
    return max(1, min(ahead, DEEPEST, limits.budget.ram // max(1, look.size)))


def _adjusted(setting: Setting, look: Window, limits: Limits, story: Story) -> Strategy:
    """Settle on a number of workers; goes on for good unless they turn out not to pay, or batches get cheap."""
    seen = yield Trial(setting, max(MANY if look.uneven else 8, setting.workers), setting.workers)
    if not seen.batches or seen.rate < look.rate * WORTH:
        story.tell(
            f"{str(setting).capitalize()} gave {rate(seen.rate)} batches/s, the consumer's own thread "
            f"{rate(look.rate)}: not kept."
        )
        return
    story.tell(
        f"{str(setting).capitalize()}: {rate(seen.rate)} batches/s instead of {rate(look.rate)} without; "
        f"{_why(look, limits)}; {setting.ahead} batches ahead ({size(setting.ahead * look.size)})."
    )
    pause, rest, regretted = 1, 0, 0
    while True:
        regret = _regret(seen, look)
        regretted = regretted + 1 if regret else 0
        if regretted >= REGRETS:
            story.tell(regret)
            return
        deeper = deepened(setting, seen, limits, story) if limits.ahead is None else setting
        more, rest = _more(setting, look, limits), rest - 1
        if seen.waiting > WAITS and seen.scarce and more != setting and rest < 0:
            setting, seen, worked = yield from _tried(more, setting, seen, story)
            rest = pause = 1 if worked else min(LONGEST_PAUSE, 2 * pause)
        setting = replace(setting, ahead=max(setting.ahead, deeper.ahead))
        seen = yield Trial(setting, max(16, setting.workers), 0)


def _regret(seen: Window, look: Window) -> str:
    """Why workers should not be kept after all; "" where they should."""
    if seen.wall < look.wall * CHEAP:
        return f"A batch takes only {duration(seen.wall)} by now."
    if seen.rate < look.rate and seen.waiting > WAITS:
        return f"Workers give {rate(seen.rate)} batches/s by now, the consumer's own thread gave {rate(look.rate)}."
    return ""


def _why(look: Window, limits: Limits) -> str:
    if look.cpu_share > 0.7:
        return f"items need the CPU and {limits.budget.cores} cores may be used"
    return f"items wait {share(1 - look.cpu_share)} of their time, so more than {limits.budget.cores} pay"


def _more(setting: Setting, look: Window, limits: Limits) -> Setting:
    most = _most(setting.way, look, limits)
    if look.cpu_share < 0.7:  # what was seen without contention says little: as long as it is measured to pay
        most = min(MOST[setting.way], limits.budget.ram // max(1, 2 * look.size))
    workers = min(most, max(setting.workers + 1, setting.workers * 3 // 2))
    grown = _sized(setting.way, max(workers, setting.workers), look, limits)
    return replace(grown, ahead=max(grown.ahead, setting.ahead)) if workers > setting.workers else setting


def _tried(
    more: Setting, setting: Setting, seen: Window, story: Story
) -> Generator[Trial, Window, tuple[Setting, Window, bool]]:
    then = yield Trial(more, max(16, more.workers), more.workers)
    worked = then.rate > seen.rate * BETTER
    kept = "kept" if worked else "not kept"
    story.tell(
        f"The consumer waited {share(seen.waiting)} of its time; {more} instead of {setting.workers}: "
        f"{rate(then.rate)} batches/s instead of {rate(seen.rate)}, {kept}."
    )
    return (more, then, True) if worked else (setting, seen, False)


def deepened(setting: Setting, seen: Window, limits: Limits, story: Story) -> Setting:
    """Where the consumer waits although workers have time, batches cost unevenly: run further ahead."""
    if seen.waiting <= WAITS or seen.scarce or not seen.stalls:
        return setting
    ahead = _within(2 * setting.ahead, seen, limits)
    if ahead > setting.ahead:
        story.tell(
            f"The consumer waited {share(seen.waiting)} of its time, all of it at {seen.stalls} of {seen.batches} "
            f"batches, and workers were busy only {share(seen.busy)}: batches cost unevenly, so {ahead} are fetched "
            f"ahead instead of {setting.ahead}."
        )
        return replace(setting, ahead=ahead)
    return setting
