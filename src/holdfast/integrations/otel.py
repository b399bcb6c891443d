"""OpenTelemetry: a span for each drive of a run, for each step, and for each attempt at one.

    holdfast.integrations.otel.instrument(hf)

The context of the trace is stored with the run when it is started. So a run that is resumed, by whatever process and
however much later, goes on in the same trace. Spans of your own inside of steps are children of the attempt's.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.engine.app import Holdfast
from holdfast.engine.workflow.failures import one_line
from holdfast.engine.workflow.outcomes import Parked, Unwind
from holdfast.errors import UsageError

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider
except ImportError as error:
    raise UsageError("OpenTelemetry is not installed; pip install 'holdfast[otel]'") from error

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution
    from holdfast.engine.workflow.step import StepFunction


def instrument(hf: Holdfast, provider: TracerProvider | None = None) -> None:
    """Trace the workflows that this engine starts and drives, with the given provider or the global one."""
    hf.client.engine.tracer = Spans(trace.get_tracer("holdfast", tracer_provider=provider))


class Spans:
    """A `holdfast.engine.app.Tracer` that makes spans."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def context(self) -> dict[str, str]:
        """The context that a new run's spans belong to: that of the caller, or else of a span that marks the start."""
        carrier: dict[str, str] = {}
        with self._tracer.start_as_current_span("holdfast start"):
            propagate.inject(carrier)
        return carrier

    def drive(self, execution: Execution, call: Callable[[], Any]) -> Any:
        """Call the workflow's function inside of a span, or give a coroutine that does."""
        if execution.workflow.is_async:
            return self._drive_async(execution, call)
        with self._run(execution):
            return call()

    async def _drive_async(self, execution: Execution, call: Callable[[], Any]) -> Any:
        with self._run(execution):
            return await call()

    @contextmanager
    def _run(self, execution: Execution) -> Iterator[None]:
        parent = propagate.extract(execution.lease.fold.input.get("trace", {}))
        record = execution.lease.record
        parts = {"holdfast.run": record.id, "holdfast.workflow": execution.workflow.name}
        parts |= {"holdfast.seq": str(record.seq), "holdfast.epoch": str(record.epoch)}
        with self._span(execution, f"run {execution.workflow.name}", parts, parent) as span:
            how = "returned"
            try:
                yield
            except Exception:  # of the workflow, which may raise anything
                how = "raised"
                raise
            except BaseException:  # it is taken apart, and goes on later
                how = "suspended"
                raise
            finally:
                outcome = execution.outcome
                if isinstance(outcome, Parked):
                    span.set_status(Status(StatusCode.ERROR, outcome.reason))
                span.set_attribute("holdfast.outcome", type(outcome).__name__.lower() if outcome else how)

    def step(self, execution: Execution, step: StepFunction[..., Any], key: str) -> AbstractContextManager[object]:
        """A span for a step, with all its attempts."""
        parts = {"holdfast.run": execution.run.id, "holdfast.key": key, "holdfast.step": step.name}
        return self._span(execution, f"step {step.name}", parts)

    def attempt(self, execution: Execution, key: str, attempt: int) -> AbstractContextManager[object]:
        """A span for one call of a step's function."""
        return self._span(execution, f"attempt {attempt}", {"holdfast.key": key, "holdfast.attempt": str(attempt)})

    @contextmanager
    def _span(self, execution: Execution, name: str, parts: dict[str, str], parent: Any = None) -> Iterator[Span]:
        """A span that an error marks as such, without the secrets in it. To be taken apart, so as to wait, is none."""
        with self._tracer.start_as_current_span(
            name, parent, attributes=parts, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Unwind:
                raise
            except Exception as error:  # of the step, which may raise anything
                scrub = execution.codec.scrub
                trace_text = scrub("".join(traceback.format_exception(error)))
                told = {"exception.message": scrub(str(error)), "exception.stacktrace": trace_text}
                span.record_exception(error, attributes=told)
                span.set_status(Status(StatusCode.ERROR, one_line(error, execution.codec)))
                raise
