"""What Holdfast's own tests are made of, for those who want to test with it.

- `holdfast.testing.clock.ManualClock`: time that moves only when it is told to, and randomness from a seed.
- `holdfast.testing.contract.StoreContract`: what every store promises, one test per promise. Subclass it to prove
  a store of your own.
- `holdfast.testing.machine.StoreMachine`: an engine on a store against a model, through random histories of claims,
  steps, crashes, forks and rollbacks.

``contract`` needs pytest and ``machine`` needs Hypothesis; nothing outside of this package imports them.
"""

from __future__ import annotations

from holdfast.testing.clock import ManualClock

__all__ = ["ManualClock"]
