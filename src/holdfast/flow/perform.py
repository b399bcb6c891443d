"""Doing a step of a flow inside of a run.

What touches the world (`run`, `http`, `call`) is a durable step, a question is `ask`, a pause is `sleep`, a flow is a
child; repetition is the engine's `map` and plain loops. So whatever was done is in the journal under a key that does
not change, and a run that is driven again finds it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

import holdfast
from holdfast.engine.workflow.scope import here
from holdfast.errors import ActionFailed, FlowFailed, HoldfastError, TemplateRefused, TimedOut
from holdfast.flow.actions.actions import act, stored
from holdfast.flow.actions.process import GRACE
from holdfast.flow.actions.secrets import Vault, named_in
from holdfast.flow.file.durations import duration
from holdfast.flow.file.model import Definition, Step
from holdfast.flow.file.variables import check_assigned
from holdfast.flow.records import OF_ACTION
from holdfast.flow.retries import how_of, pause, retry_of
from holdfast.flow.template.limits import Placeholder, Unknown
from holdfast.flow.template.render import KEPT, Filler, Frame
from holdfast.flow.undo import run_undo

MAX_ITEMS = 10_000  # of one for_each
ROUNDS = 100  # of an `until` without a `loop`
STOPPING = GRACE + 1.0  # seconds for what a step that ran out of time has inside to end
ITEM_TAIL = 1_000  # characters of each stream that the record of a for_each keeps of an item


class _Failure(NamedTuple):
    """An item that failed: what is recorded of it, and its error."""

    record: dict[str, Any]
    error: Exception


class Performer:
    """Does the steps of one run, in one drive. ``child`` runs a flow as a child of the run."""

    def __init__(
        self, definition: Definition, vault: Vault, run: str, child: Callable[[Definition, dict[str, Any]], Any]
    ) -> None:
        self.definition = definition
        self.vault = vault
        self.run = run
        self._child = child

    def perform(self, step: Step, frame: Frame) -> dict[str, Any]:
        """Do a step; its record, which is noted in the frame too. Raises `FlowFailed` if the run cannot go on."""
        filler = Filler(self.definition, step, frame)
        try:
            if step.when is not None and not filler.condition("when", step.when):
                record: dict[str, Any] = {"status": "skipped"}
            else:
                record = {"status": "ok", **self._repeated(step, frame, filler)}
        except Exception as error:  # of the step: whatever it is, `on_failure` says what comes of it
            record = self._failed(step, error)
        frame.note(step.id, record)
        return record

    def _failed(self, step: Step, error: Exception) -> dict[str, Any]:
        record, why = self._account(error)
        if isinstance(error, FlowFailed) and (error.wants_rollback or step.on_failure == "abort"):
            raise error  # of a step inside of this one
        if step.on_failure == "skip" or step.goto is not None:
            return record
        why += KEPT if isinstance(error, TemplateRefused) else ""
        raise FlowFailed(
            step.id, self.definition.place(step), why, wants_rollback=step.on_failure == "rollback"
        ) from error

    def _account(self, error: Exception) -> tuple[dict[str, Any], str]:
        is_ours = isinstance(error, HoldfastError)
        why: str = self.vault.mask(str(error) if is_ours else f"{type(error).__name__}: {error}")
        kept = error.record if isinstance(error, ActionFailed) else {}
        return {"status": "failed", "error": why, **kept}, why

    # --- several times

    def _repeated(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        if step.for_each is not UNSET:
            return self._each(step, frame, filler)
        if step.loop is not None or step.until is not None:
            return self._rounds(step, frame)
        return self._once(step, frame, filler)

    def _each(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        items = filler.value("for_each", step.for_each)
        if not isinstance(items, list):
            raise ActionFailed(f"`for_each` is a list, not {type(items).__name__}")
        if len(items) > MAX_ITEMS:
            raise ActionFailed(f"`for_each` has {len(items):,} items, and at most {MAX_ITEMS:,} are taken")

        def one(numbered: tuple[int, Any]) -> dict[str, Any] | _Failure:
            index, item = numbered
            inside = frame.within(item=item, index=index)
            try:
                record = self._once(step, inside, Filler(self.definition, step, inside))
            except FlowFailed as error:
                if error.wants_rollback:
                    raise
                return _Failure(self._account(error)[0], error)
            except Exception as error:  # of the item: the others are done all the same
                return _Failure(self._account(error)[0], error)
            if step.inner:
                record = {**record, "steps": {id: _short(one) for id, one in inside.new_steps.items()}}
            return _short({"status": "ok", **record})

        done = holdfast.map(one, list(enumerate(items)), limit=step.limit)
        records = [one.record if isinstance(one, _Failure) else one for one in done]
        failures = [one for one in done if isinstance(one, _Failure)]
        if not failures:
            return {"items": records}
        why = f"{len(failures)} of {len(items)} items failed; the first: {failures[0].record['error']}"
        raise ActionFailed(why, {"items": [_short(record) for record in records]}) from ExceptionGroup(
            "items", [one.error for one in failures]
        )

    def _rounds(self, step: Step, frame: Frame) -> dict[str, Any]:
        most = step.loop or ROUNDS
        last: Exception | None = None
        record: dict[str, Any] = {}
        for index in range(most):
            if index and step.delay:
                holdfast.sleep(step.delay)
            inside = frame.within(index=index)
            last = None
            try:
                record = {"status": "ok", **self._once(step, inside, Filler(self.definition, step, inside))}
            except Exception as error:  # of the round: with `until`, that one decides
                if step.until is None or (isinstance(error, FlowFailed) and error.wants_rollback):
                    raise
                record, last = self._account(error)[0], error
            record["rounds"] = index + 1
            inside.note(step.id, record)
            frame.take(inside)
            if step.until is not None and Filler(self.definition, step, inside).condition("until", step.until):
                return {name: value for name, value in record.items() if name != "error"} | {"status": "ok"}
        if step.until is None:
            return record
        why = f"; the last one failed: {record['error']}" if last is not None else ""
        raise ActionFailed(f"`until` did not hold in {most} rounds{why}", record) from last

    # --- once

    def _once(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        match step.action:
            case "run" | "http" | "call":
                return self._acted(step, frame, filler)
            case "ask":
                return self._asked(step, filler)
            case "flow" | "parallel" | "steps":
                return self._grouped(step, frame, filler)
            case "set":
                assert step.set is not None
                values = filler.value("set", step.set)
                check_assigned(self.definition, values)
                frame.assign(values)
                return {}
            case _:
                return self._waited(step, filler)

    # --- steps inside, and other flows

    def _grouped(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        """Do what is inside as a whole, and again if it fails, as `retry` says, each time with the same values."""
        retry = retry_of(step)
        for attempt in count(1):
            inside = frame.within()
            try:
                record = self._in_time(step, inside, filler)
            except Exception as error:  # of the steps inside, which may raise anything
                given_up = isinstance(error, FlowFailed) and error.wants_rollback
                if retry is None or attempt > retry.times or given_up:
                    frame.take(inside)
                    raise
                holdfast.sleep(pause(retry, attempt))
            else:
                frame.take(inside)
                return record
        raise AssertionError("it ends with a record or an error")

    def _in_time(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        if step.timeout is None:
            return self.inside(step, frame, filler)
        branch = _Timed(self, step, frame.within(), filler)
        try:
            record: dict[str, Any] = holdfast.timeout(step.timeout, branch)
        except TimedOut:
            branch.ended.wait(STOPPING)  # so that nothing is done, or undone, beside a command that is being ended
            raise ActionFailed(f"it did not end within {step.timeout:g} s, and was stopped") from None
        except Exception:  # of the steps inside: what became of them is known, as it is after a time-out never for sure
            frame.take(branch.frame)
            raise
        frame.take(branch.frame)
        return record

    def inside(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        if step.flow is not None:
            return self._called(self.definition.flows[step.flow], filler.value("with", step.given))
        if step.parallel:
            return self._parallel(step, frame)
        for part in step.steps:
            self.perform(part, frame)
        return {}

    def _called(self, flow: Definition, given: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": self._child(flow, given)}
        except FlowFailed as failed:  # if it was rolled back, that is over, and says nothing about this run
            raise ActionFailed(str(failed)) from failed

    def _parallel(self, step: Step, frame: Frame) -> dict[str, Any]:
        frames = [frame.within() for _ in step.parallel]
        branches = [_Branch(self, part, inside) for part, inside in zip(step.parallel, frames, strict=True)]
        ended = holdfast.gather(*branches, limit=step.limit, return_exceptions=True)
        for inside in frames:
            frame.take(inside)
        errors = [one for one in ended if isinstance(one, Exception)]
        if not errors:
            return {}
        for error in errors:
            if len(errors) == 1 or (isinstance(error, FlowFailed) and error.wants_rollback):
                raise error
        why = f"{len(errors)} of {len(branches)} branches failed; the first: {self._account(errors[0])[1]}"
        raise ActionFailed(why) from ExceptionGroup("branches", errors)

    def _acted(self, step: Step, frame: Frame, filler: Filler) -> dict[str, Any]:
        action, branch = filler.action(), here(f"step {step.id}")
        if step.undo is not None:
            self._check_undo(step, frame)

        def body() -> dict[str, Any]:
            record = act(action, self.vault, self.run, branch)
            return (
                {"record": record} if step.undo is None else {"record": record, "undo": self._undo(step, frame, record)}
            )

        made = holdfast.step(
            name=step.id,
            **how_of(retry_of(step)),
            timeout=action.timeout if action.call is not None else None,
            undo=run_undo if step.undo is not None else None,
            target=(lambda: action.short()) if step.undo is not None else None,
            check_args=False,
        )(body)
        record: dict[str, Any] = made()["record"]
        return record

    def _check_undo(self, step: Step, frame: Frame) -> None:
        """Raise `TemplateRefused` before anything is done, if the undo cannot be filled in whatever the step gives."""
        assert step.undo is not None
        inside = frame.within()
        names = OF_ACTION[step.action]
        inside.steps[step.id] = {"status": "ok"} | {name: Placeholder(f"steps.{step.id}.{name}") for name in names}
        with suppress(Unknown):
            Filler(self.definition, step, inside).undo(step.undo)

    def _undo(self, step: Step, frame: Frame, record: dict[str, Any]) -> dict[str, Any]:
        """What is stored for a rollback: the action with its templates filled in, and where its secrets are."""
        assert step.undo is not None
        inside = frame.within()
        inside.note(step.id, {"status": "ok", **record})
        try:
            action = stored(Filler(self.definition, step, inside).undo(step.undo))
        except TemplateRefused as refused:
            raise ActionFailed(f"it was done, and nothing can take it back: {refused}", record) from None
        sources = {name: self.definition.secrets[name] for name in named_in(action)}
        known = msgspec.to_builtins(sources)
        return {"action": action, "secrets": known, "folder": self.definition.folder, "run": self.run}

    def _asked(self, step: Step, filler: Filler) -> dict[str, Any]:
        ask = step.ask
        assert ask is not None
        prompt = filler.text("ask", ask.prompt)
        options = tuple(filler.text("ask.options", option) for option in ask.options)
        how: dict[str, Any] = {} if ask.default is UNSET else {"default": ask.default}
        answer = holdfast.ask(prompt, ask.kind(options), timeout=step.timeout, **how)
        if ask.is_approval and not answer:
            raise ActionFailed("it was not approved", {"result": answer})
        return {"result": answer}

    def _waited(self, step: Step, filler: Filler) -> dict[str, Any]:
        wait = step.wait
        assert wait is not None
        if wait.until is not None:
            text = filler.text("wait.until", wait.until)
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                raise ActionFailed(f"`wait.until` is a date and time, not {text!r}") from None
            if moment.tzinfo is None:
                raise ActionFailed(f"`wait.until` has no time zone: {text!r}; write {text}Z, or +01:00") from None
            holdfast.sleep(until=moment)
        else:
            value = filler.value("wait.for", wait.span)
            seconds = duration(value) if isinstance(value, int | float | str) else None
            if seconds is None:
                raise ActionFailed(f"`wait` is a duration such as 5m, not {value!r}")
            holdfast.sleep(seconds)
        return {}


class _Timed:
    """What is inside of a step that has a time limit. ``ended`` is set while nothing of it goes on."""

    def __init__(self, performer: Performer, step: Step, frame: Frame, filler: Filler) -> None:
        self._performer, self._step, self.frame, self._filler = performer, step, frame, filler
        self.ended = threading.Event()
        self.ended.set()

    def __call__(self) -> dict[str, Any]:
        self.ended.clear()
        try:
            return self._performer.inside(self._step, self.frame, self._filler)
        finally:
            self.ended.set()


class _Branch:
    """One step of a `parallel`."""

    def __init__(self, performer: Performer, step: Step, frame: Frame) -> None:
        self._performer, self._step, self._frame = performer, step, frame

    def __call__(self) -> dict[str, Any]:
        return self._performer.perform(self._step, self._frame)


def _short(record: dict[str, Any]) -> dict[str, Any]:
    """The record of an item, with less of its output: there may be many."""
    kept: dict[str, Any] = {name: record[name][-ITEM_TAIL:] for name in ("stdout", "stderr", "body") if name in record}
    return {**record, **kept}
