"""The way to the server: it is cut, it stalls, and it swallows answers, also those to COMMIT."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pgproxy import Proxy

# What the worker sends last in a transaction, and what is in the entries of each kind of step.
COMMIT = b"COMMIT\0"
SENT = [COMMIT, COMMIT, COMMIT, b"accept", b"reserve", b"book", b"deposit", b"charge", b"pack", b"postage", b"close"]

KINDS = ["cut", "stall", "before", "after", "swallow"]


@pytest.mark.slow(covered_by="tests/postgres/test_unknown.py")
@pytest.mark.parametrize("faults", [40, pytest.param(1_500, marks=pytest.mark.torture)])
def test_a_network_that_loses_answers_loses_no_work_and_doubles_none(
    fleet: Any, proxy: Proxy, detour: str, faults: int, verdict: Callable[..., None]
) -> None:
    crew = fleet.crew(lambda: fleet.worker(detour, lease=5.0, silence=1.0), 2)
    crew.fill()
    made: Counter[str] = Counter()
    armed, until = "", 0.0

    def strike() -> bool:
        """One fault at a time; how it comes is a matter of chance."""
        nonlocal armed, until
        if armed and (proxy.struck.is_set() or time.monotonic() > until):
            proxy.go_on()
            made[armed] += armed in ("cut", "stall") or proxy.struck.is_set()
            armed = ""
        if not armed and made.total() < faults and all(worker.ready for worker in crew.members):
            armed = min(KINDS, key=lambda kind: (made[kind], fleet.chance.random()))
            until = time.monotonic() + fleet.chance.uniform(0.05, 0.3)
            proxy.struck.clear()
            if armed == "cut":
                proxy.cut()
            elif armed == "stall":
                proxy.stall()
            else:
                proxy.lose(fleet.chance.choice(SENT), armed)
        return made.total() >= faults

    fleet.trial.go(strike, timeout=1200 if faults > 40 else 90)
    crew.dismiss()
    verdict(fleet, "network faults", **{f"faults_{how}": n for how, n in sorted(made.items())})
