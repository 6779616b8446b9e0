"""Memory that a step frees goes back to the system, and is handed out again page by page.

What it is
    The C library gives large blocks back as soon as they are freed. A model with large activations on the CPU asks
    for the same memory in every step, and the system clears and maps each page of it at its first touch.
How it is recognised
    Pages that the system handed out in a step, times what a page costs on this machine, which the probe measured.
    Threads touch pages at once, so that it is an estimate, and never more than a warning.
What to do
    Keep freed memory in the process (`keep-memory`, or `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184` in the
    environment), or preload an allocator that does, such as jemalloc or tcmalloc.
Evidence
    `pages`: handed out in a step
    `page_us`: what one of them takes
    `pages_mib`: all of them
"""

from __future__ import annotations

from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.ports.rule import Rule, Sight

_PAGE_MIB = 4096 / 2**20


class MemoryChurn(Rule):
    cause = Cause.MEMORY_CHURN

    def examine(self, sight: Sight) -> Finding | None:
        runtime, step_ms = sight.timeline.runtime, sight.summary.step_ms
        if not runtime.pages or not runtime.page_us or not step_ms:
            return None
        evidence: Evidence = {
            "pages": runtime.pages,
            "page_us": runtime.page_us,
            "pages_mib": runtime.pages * _PAGE_MIB,
        }
        share = runtime.pages * runtime.page_us / (step_ms * 1e3)
        return finding(self.cause, min(1.0, share), evidence, at_most=Severity.WARNING)
