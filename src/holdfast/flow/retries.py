"""How what failed is tried again: an action by the engine's own retries, steps inside and flows as a whole."""

from __future__ import annotations

from typing import Any

from holdfast.engine.workflow.attempts import Retry as StepRetry
from holdfast.errors import StepTimeout
from holdfast.flow.actions.actions import FailedForNow
from holdfast.flow.file.model import Retry, Step

AGAIN = Retry(3)  # of `on_failure: retry` without a `retry`


def retry_of(step: Step) -> Retry | None:
    """How a step is tried again; None if it is not."""
    return step.retry or (AGAIN if step.on_failure == "retry" else None)


def how_of(retry: Retry | None) -> dict[str, Any]:
    """The same as `holdfast.step` takes it."""
    if retry is None:
        return {"retries": StepRetry().times}
    return {
        "retries": retry.times,
        "delay": retry.delay,
        "backoff": retry.backoff,
        "max_delay": retry.max_delay,
        "retry_on": (FailedForNow, StepTimeout),
    }


def pause(retry: Retry, attempt: int) -> float:
    """Seconds to wait after an attempt (from 1) failed."""
    return StepRetry(retry.times, retry.delay, retry.backoff, retry.max_delay, jitter=False).pause(attempt, 1.0)
