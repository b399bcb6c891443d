"""What steps do in the world: run a command, send a request, call a function.

An action is given rendered: its templates are filled in, and marks stand for secrets. So it can be stored, as an undo
is, and shown. The secrets come in here, right before it acts, and are taken out of what comes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.engine.workflow.effect_step import this_step
from holdfast.engine.workflow.outcomes import Aborted, Cancelled, Expired, Unwind
from holdfast.engine.workflow.scope import Scope, StepScope, current_scope, current_undo
from holdfast.errors import ActionFailed
from holdfast.flow.actions import web
from holdfast.flow.actions.functions import loaded
from holdfast.flow.actions.live_output import Line, hand_on
from holdfast.flow.actions.process import run_shell
from holdfast.flow.actions.secrets import Vault, told

_SHOWN = 500  # characters of what a command said, in the error
_SHORT = 120  # characters of an action, where it is named
_FRESH = ("POST", "PATCH")  # methods that do something each time they are sent


class FailedForNow(ActionFailed):
    """What a step of a flow did has failed, and may be tried again."""

    speaks_for_itself = True


class Action(Struct, frozen=True, omit_defaults=True):
    """A rendered action of a step: exactly one of ``run``, ``http`` and ``call`` is set."""

    step: str
    run: str | None = None
    env: dict[str, str] = {}
    cwd: str = ""
    http: dict[str, Any] | None = None
    call: str | None = None
    given: dict[str, Any] = {}
    timeout: float | None = None
    again_on: tuple[int, ...] = ()  # the codes after which it is tried again; none: all

    def short(self) -> str:
        """In one short line, for people."""
        first, *more = self.told().split("\n")
        return first[:_SHORT] + (" …" if more or len(first) > _SHORT else "")

    def told(self) -> str:
        """What it does, for people."""
        if self.run is not None:
            text = self.run.strip()
        elif self.http is not None:
            text = f"{self.http['method']} {self.http['url']}"
        else:
            text = f"{self.call}({', '.join(f'{name}={told(value)!r}' for name, value in self.given.items())})"
        shown: str = told(text)
        return shown


def stored(action: Action) -> dict[str, Any]:
    """As plain data."""
    made: dict[str, Any] = msgspec.to_builtins(action)
    return made


def act(action: Action, vault: Vault, run: str, branch: Scope | None = None) -> dict[str, Any]:
    """Carry out an action of a branch; its record. Raises `ActionFailed` with the record if it fails."""
    if action.run is not None:
        return _run(action, vault, run, branch)
    if action.http is not None:
        return _http(action, vault, branch)
    return _call(action, vault)


def take_back(action: Action, vault: Vault, run: str) -> None:
    """Carry out the action of an undo, of which nothing is kept. Raises `ActionFailed` if it fails."""
    if action.call is not None:
        _called(action, vault)
    else:
        act(action, vault, run)


def keep_on(branch: Scope | None) -> None:
    """Raise if what is done in a branch is in vain: it was stopped, the run was cancelled or ran out of time, it is
    somebody else's by now, or this process was told to end at once.
    """
    if branch is None:
        return
    execution = branch.execution
    if (
        branch.is_over
        or isinstance(execution.outcome, Cancelled | Aborted)
        or execution.interrupted
        or execution.abandoned
    ):
        raise Unwind
    deadline = execution.deadline
    if deadline is not None and execution.clock.now() >= deadline:
        execution.unwind(Expired(execution.lease.fold.input["seconds"]))


def _identity(run: str, step: str) -> dict[str, str]:
    """What a command can know of itself."""
    known = {"HOLDFAST_RUN": run, "HOLDFAST_STEP": step}
    if (key := _idempotency_key()) is not None:
        known["HOLDFAST_IDEMPOTENCY_KEY"] = key
    return known


def _idempotency_key() -> str | None:
    scope = current_scope.get()
    is_inside = isinstance(scope, StepScope) or current_undo.get() is not None
    return this_step().idempotency_key if is_inside else None


def _run(action: Action, vault: Vault, run: str, branch: Scope | None) -> dict[str, Any]:
    assert action.run is not None
    command = vault.reveal_text(action.run)
    env = {name: vault.reveal_text(value) for name, value in action.env.items()}

    def tell(stream: Any, line: str) -> None:
        hand_on(Line(run, action.step, stream, line))

    ended = run_shell(
        command,
        env={**_identity(run, action.step), **env},
        cwd=vault.reveal_text(action.cwd) or os.curdir,
        timeout=action.timeout,
        masker=vault.masker,
        tell=tell,
        keep_on=partial(keep_on, branch),
    )
    record = {"exit_code": ended.exit_code, "stdout": ended.stdout, "stderr": ended.stderr}
    if ended.timed_out:
        raise _failed(action, f"it did not end within {action.timeout:g} s, and was killed", record, None)
    if ended.exit_code != 0:
        said = " ".join((ended.stderr or ended.stdout).split())[-_SHOWN:]
        raise _failed(action, f"exit code {ended.exit_code}" + (f": {said}" if said else ""), record, ended.exit_code)
    return record


def _http(action: Action, vault: Vault, branch: Scope | None) -> dict[str, Any]:
    sent = action.http
    assert sent is not None
    headers = {name: vault.reveal_text(value) for name, value in sent.get("headers", {}).items()}
    key = _idempotency_key()
    if key is not None and sent["method"] in _FRESH and not any(name.lower() == "idempotency-key" for name in headers):
        headers["Idempotency-Key"] = key
    body = sent.get("body")
    try:
        request = web.Request(
            method=sent["method"],
            url=vault.reveal_text(sent["url"]),
            headers=headers,
            params={name: vault.reveal_text(value) for name, value in sent.get("params", {}).items()},
            json=_texts(vault, sent["json"]) if "json" in sent else None,
            body=vault.reveal_text(body) if body is not None else None,
            follow_redirects=sent.get("follow_redirects", False),
        )
        answer = web.send(request, timeout=action.timeout, keep_on=partial(keep_on, branch))
    except ActionFailed as failed:
        raise _failed(action, vault.mask(failed.why), {}, None) from None
    record = vault.mask({"status_code": answer.status_code, "body": answer.body, "result": answer.json})
    if record["result"] is None:
        record["result"] = record["body"]
    expected = sent.get("expect") or range(200, 300)
    if answer.status_code not in expected:
        where = f" to {answer.location}" if answer.location else ""
        said = " ".join(record["body"].split())[:_SHOWN]
        why = f"status code {answer.status_code}{where}" + (f": {said}" if said else "")
        raise _failed(action, vault.mask(why), record, answer.status_code)
    return dict(record)


def _texts(vault: Vault, value: Any) -> Any:
    """A value with the secrets in it as texts."""
    if isinstance(value, str):
        return vault.reveal_text(value)
    if isinstance(value, list):
        return [_texts(vault, one) for one in value]
    return {name: _texts(vault, one) for name, one in value.items()} if isinstance(value, dict) else value


def _call(action: Action, vault: Vault) -> dict[str, Any]:
    result = _called(action, vault)
    try:
        plain = msgspec.to_builtins(result)
    except (TypeError, msgspec.ValidationError, RecursionError) as error:
        raise ActionFailed(f"{action.call} gave what cannot be kept: {error}") from None
    return {"result": vault.mask(plain)}


def _called(action: Action, vault: Vault) -> Any:
    assert action.call is not None
    function: Callable[..., Any] = loaded(action.call)
    try:
        return function(**vault.reveal(action.given))
    except ActionFailed:
        raise
    except (Exception, SystemExit) as error:  # of the user's function, which may raise anything
        raise _failed(action, vault.mask(f"{type(error).__name__}: {error}"), {}, None) from error


def _failed(action: Action, why: str, record: dict[str, Any], code: int | None) -> ActionFailed:
    again = not action.again_on or (code is not None and code in action.again_on)
    return (FailedForNow if again else ActionFailed)(why, record)
