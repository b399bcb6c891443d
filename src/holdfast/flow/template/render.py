"""Filling in: the templates of a step, with the values that a run has at that point."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, to_builtins

from holdfast.errors import TemplateRefused
from holdfast.flow.actions.actions import Action
from holdfast.flow.actions.secrets import marked
from holdfast.flow.file.model import Definition, Http, Step, Undo
from holdfast.flow.template.syntax import Mode
from holdfast.flow.template.template import template

# What to do about a template that a run cannot fill in: trying again, and a fork, use the same one.
KEPT = "; the run keeps the definition that it began with, so mend the file and start a new run"


class Frame:
    """The values that templates see at one point of a run, and what steps changed of them since it was made."""

    def __init__(self, vars: Mapping[str, Any], steps: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        self.vars = dict(vars)
        self.steps = dict(steps)
        self.extra = dict(extra)  # run, secrets, item, index
        self.new_vars: dict[str, Any] = {}
        self.new_steps: dict[str, Any] = {}

    @classmethod
    def of(cls, definition: Definition, run: str, vars: Mapping[str, Any], steps: Mapping[str, Any]) -> Frame:
        """The values at the beginning of a top-level step."""
        secrets = {name: marked(name) for name in definition.secrets}
        return cls(vars, steps, {"secrets": secrets, "run": {"id": run, "flow": definition.name}})

    def within(self, **extra: Any) -> Frame:
        """The same for a branch, whose changes are its own."""
        return Frame(self.vars, self.steps, {**self.extra, **extra})

    def values(self) -> dict[str, Any]:
        """What templates see."""
        return {"vars": self.vars, "steps": self.steps, **self.extra}

    def note(self, step: str, record: dict[str, Any]) -> None:
        """A step has ended."""
        self.steps[step] = self.new_steps[step] = record

    def assign(self, values: Mapping[str, Any]) -> None:
        """Variables have new values."""
        self.vars.update(values)
        self.new_vars.update(values)

    def take(self, branch: Frame) -> None:
        """Take over what a branch changed."""
        self.assign(branch.new_vars)
        self.steps.update(branch.new_steps)
        self.new_steps.update(branch.new_steps)


class Filler:
    """Fills in the templates of one step. Errors name the step, the key and its place in the file."""

    def __init__(self, definition: Definition, step: Step, frame: Frame) -> None:
        self._definition, self._step, self._frame = definition, step, frame

    def _render(self, key: str, source: str, mode: Mode) -> Any:
        return self._placed(key, lambda: template(source, mode).render(self._frame.values()))

    def _placed(self, key: str, render: Callable[[], Any]) -> Any:
        try:
            return render()
        except TemplateRefused as refused:
            place = f"`{key}` of step {self._step.id!r} ({self._definition.place(self._step)})"
            raise TemplateRefused(place, refused.why) from None

    def text(self, key: str, source: str) -> str:
        """A template as text."""
        made: str = self._render(key, source, "text")
        return made

    def value(self, key: str, value: Any) -> Any:
        """A value, with each text in it filled in."""
        if isinstance(value, dict):
            return {name: self.value(f"{key}.{name}", one) for name, one in value.items()}
        return self._placed(key, lambda: filled(value, self._frame))

    def condition(self, key: str, source: str) -> bool:
        """Whether a condition holds."""
        return bool(self._render(key, source, "condition"))

    def action(self) -> Action:
        """The step's run, call or http."""
        step = self._step
        again_on = step.retry.on if step.retry is not None else ()
        return self._action(step.run, step.http, step.call, step.given, step.timeout, "", again_on)

    def undo(self, undo: Undo) -> Action:
        """What takes the step back."""
        return self._action(undo.run, undo.http, undo.call, undo.given, undo.timeout, "undo", ())

    def _action(
        self,
        run: str | None,
        http: Http | None,
        call: str | None,
        given: dict[str, Any],
        timeout: float | None,
        under: str,
        again_on: tuple[int, ...],
    ) -> Action:
        id = self._step.id
        if run is not None:
            command = self.text(under or "run", run)
            return Action(id, run=command, env=self._env(), cwd=self._cwd(), timeout=timeout, again_on=again_on)
        if http is not None:
            sent = self._http(under or "http", http)
            return Action(id, http=sent, timeout=timeout, again_on=again_on)
        return Action(id, call=call, given=self.value(under or "with", given), timeout=timeout)

    def _env(self) -> dict[str, str]:
        both = {**self._definition.env, **self._step.env}
        return {name: self.text(f"env.{name}", source) for name, source in both.items()}

    def _cwd(self) -> str:
        source = self._step.cwd or self._definition.cwd
        folder = self._definition.folder
        return os.path.join(folder, self.text("cwd", source)) if source else folder

    def _http(self, key: str, http: Http) -> dict[str, Any]:
        sent: dict[str, Any] = {"method": http.method, "url": self.text(f"{key}.url", http.url)}
        for name in ("headers", "params"):
            if given := getattr(http, name):
                sent[name] = {word: self.text(f"{key}.{name}.{word}", source) for word, source in given.items()}
        if http.json is not UNSET:
            sent["json"] = self.value(f"{key}.json", http.json)
        if http.body is not None:
            sent["body"] = self.text(f"{key}.body", http.body)
        if http.expect:
            sent["expect"] = to_builtins(http.expect)
        if http.follow_redirects:
            sent["follow_redirects"] = True
        return sent


def outputs_of(definition: Definition, frame: Frame) -> dict[str, Any]:
    """What the run gives as its result."""
    made: dict[str, Any] = {}
    for name, value in (definition.outputs or {}).items():
        try:
            made[name] = filled(value, frame)
        except TemplateRefused as refused:
            raise TemplateRefused(f"`outputs.{name}` ({definition.file})", refused.why + KEPT) from None
    return made


def filled(value: Any, frame: Frame) -> Any:
    """A value, with each text in it filled in."""
    if isinstance(value, str):
        return template(value, "value").render(frame.values())
    if isinstance(value, list | tuple):
        return [filled(one, frame) for one in value]
    return {name: filled(one, frame) for name, one in value.items()} if isinstance(value, dict) else value
