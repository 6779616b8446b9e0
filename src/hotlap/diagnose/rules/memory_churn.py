"""Memory that a step frees goes back to the system, and is handed out again page by page.

What it is
    The C library gives large blocks back as soon as they are freed. A model with large activations on the CPU asks
    for the same memory in every step, and the system clears and maps each page of it at its first touch.
How it is recognised
    Hypothesis: pages that the system handed out in a step, times what a page costs on this machine, which the probe
    measured, are at least 2 % of a step. It becomes a finding when an experiment that keeps freed memory wins.
What to do
    Keep freed memory in the process (`keep-memory`, or `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184` in the
    environment), or preload an allocator that does, such as jemalloc or tcmalloc.
Evidence
    `pages`: handed out in a step
    `page_us`: what one of them takes
    `pages_mib`: all of them
"""

from __future__ import annotations

from hotlap.cost.reading import churn_share
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

_PAGE_MIB = 4096 / 2**20


class MemoryChurn(Rule):
    cause = Cause.MEMORY_CHURN
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        runtime = sight.timeline.runtime
        if runtime.pages is None or runtime.page_us is None:
            return None
        evidence: Evidence = {
            "pages": runtime.pages,
            "page_us": runtime.page_us,
            "pages_mib": runtime.pages * _PAGE_MIB,
        }
        share = churn_share(sight.timeline, sight.summary.step_ms)
        return finding(self.cause, share, evidence)
