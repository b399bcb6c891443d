"""What Holdfast's own tests are made of, for those who want to test with it.

For workflows:

- `open`: a store on a virtual clock, so that a workflow that sleeps for a month is tested in milliseconds.
- `crash_everywhere`: a workflow of yours with a crash at every point, and what was wrong then.
- `save_history` and `replay`: would runs that are under way still be understood by today's code?
- The fixtures ``durable``, ``virtual_clock`` and ``effects``, in `holdfast.testing.plugin`.

For stores and engines:

- `ManualClock`: time that moves only when it is told to, and randomness from a seed.
- `holdfast.testing.contract.StoreContract`: what every store promises, one test per promise. Subclass it to prove
  a store of your own.
- `holdfast.testing.simulation.Simulation`: several workers that stall and die, in an order that a seed decides.

``contract`` needs pytest; nothing outside of this package imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.testing.clock import ManualClock

if TYPE_CHECKING:
    from holdfast.engine.app import Holdfast
    from holdfast.testing.histories import Replayed, replay, save_history
    from holdfast.testing.workflows import CrashReport, Effects, crash_everywhere

__all__ = [
    "CrashReport",
    "Effects",
    "ManualClock",
    "Replayed",
    "crash_everywhere",
    "open",
    "replay",
    "save_history",
]

_HOMES = {
    "CrashReport": "workflows",
    "Effects": "workflows",
    "Replayed": "histories",
    "crash_everywhere": "workflows",
    "replay": "histories",
    "save_history": "histories",
}


def open(url: str = "memory://", *, clock: ManualClock | None = None, **how: Any) -> Holdfast:
    """Open a store on a virtual clock: what a workflow waits for is there at once.

    Time passes when somebody waits (``run.result()``, ``hf.work(until_idle=True)``), and when the clock is told to
    ``advance``. Everything else is as with `holdfast.open`, which also takes what is left in ``how``.
    """
    import holdfast
    from holdfast.stores import open_store

    return holdfast.open(url, store=open_store(url, clock=clock or ManualClock()), **how)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    found = getattr(import_module(f"holdfast.testing.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
