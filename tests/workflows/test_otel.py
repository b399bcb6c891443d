"""Spans: run, step and attempt; and a trace that goes on across a resume, in whatever process."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import holdfast
from holdfast import Secret, ask, step, workflow
from holdfast.integrations.otel import instrument

tries: list[int] = []


@step(retries=1, delay=0)
def flaky(n: int) -> int:
    tries.append(n)
    if len(tries) == 1:
        raise ConnectionError("not now")
    return n


@step
async def double(n: int) -> int:
    return 2 * n


@step
def broken() -> None:
    raise ValueError("no such thing")


@workflow
def traced(n: int) -> int:
    got = flaky(n)
    more: int = ask("How many more?", int)
    return got + more


@workflow
async def traced_async(n: int) -> int:
    return await double(n)


@workflow
def traced_failure() -> None:
    broken()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    tries.clear()
    return InMemorySpanExporter()


def provider(spans: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(spans))
    return made


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.get_span_context().span_id


def test_a_step_is_a_span_with_one_for_each_attempt(spans: InMemorySpanExporter) -> None:
    with holdfast.open("memory://") as hf:
        instrument(hf, provider(spans))
        hf.start(traced, 1)
    [run], [one] = named(spans, "run traced"), named(spans, "step flaky")
    [first], [second] = named(spans, "attempt 1"), named(spans, "attempt 2")
    assert is_child(one, run)
    assert is_child(first, one)
    assert is_child(second, one)
    assert not first.status.is_ok
    assert first.events[0].attributes is not None
    assert first.events[0].attributes["exception.message"] == "not now"
    assert second.status.is_ok or second.status.is_unset
    assert one.attributes is not None
    assert one.attributes["holdfast.key"] == "flaky#1"
    assert run.attributes is not None
    assert run.attributes["holdfast.outcome"] == "suspended"


def test_a_resumed_run_goes_on_in_the_same_trace(store_url: str, spans: InMemorySpanExporter) -> None:
    with holdfast.open(store_url) as hf:
        instrument(hf, provider(spans))
        hf.start(traced, 1, id="a").answer(2)
        if store_url.startswith("memory"):
            assert hf.get("a").resume() == "completed"
    if not store_url.startswith("memory"):
        with holdfast.open(store_url) as hf:
            instrument(hf, provider(spans))
            assert hf.get("a").resume() == "completed"
    drives = named(spans, "run traced")
    assert len(drives) == 2
    assert len({span.get_span_context().trace_id for span in spans.get_finished_spans()}) == 1


def test_a_run_belongs_to_the_trace_of_whoever_starts_it(spans: InMemorySpanExporter) -> None:
    made = provider(spans)
    with holdfast.open("memory://") as hf, made.get_tracer("mine").start_as_current_span("request") as mine:
        instrument(hf, made)
        hf.start(traced, 1)
        trace_id = mine.get_span_context().trace_id
    assert {span.get_span_context().trace_id for span in spans.get_finished_spans()} == {trace_id}


async def drive_async(spans: InMemorySpanExporter) -> None:
    async with holdfast.open("memory://") as hf:
        instrument(hf, provider(spans))
        assert await (await hf.start(traced_async, 4)).result() == 8


def test_async_workflows_are_traced_the_same_way(spans: InMemorySpanExporter) -> None:
    import asyncio

    asyncio.run(drive_async(spans))
    [run], [one], [attempt] = named(spans, "run traced_async"), named(spans, "step double"), named(spans, "attempt 1")
    assert is_child(one, run)
    assert is_child(attempt, one)


def test_what_fails_is_marked(spans: InMemorySpanExporter) -> None:
    with holdfast.open("memory://") as hf:
        instrument(hf, provider(spans))
        hf.start(traced_failure)
    for name in ("run traced_failure", "step broken", "attempt 1"):
        [span] = named(spans, name)
        assert span.status.description == "ValueError: no such thing"


@step
def leaks(token: Secret) -> None:
    raise PermissionError(f"{token.reveal()} was refused")


@workflow
def traced_secret(token: Secret) -> None:
    leaks(token)


def test_no_span_tells_a_secret(spans: InMemorySpanExporter) -> None:
    with holdfast.open("memory://") as hf:
        instrument(hf, provider(spans))
        hf.start(traced_secret, Secret("hunter2-hunter2"))
    told = "".join(span.to_json() for span in spans.get_finished_spans())
    assert "was refused" in told
    assert "hunter2" not in told
