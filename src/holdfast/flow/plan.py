"""The dry run: what a run would do, step by step, with every template filled in as far as it is known.

What only a real run has (the output of a command, an answer, an item of a list that is computed) stands as its name in
angle brackets: ``<steps.build.stdout>``.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from holdfast.errors import TemplateRefused
from holdfast.flow.actions.actions import stored
from holdfast.flow.actions.secrets import told
from holdfast.flow.file.keys import ACTS
from holdfast.flow.file.model import Definition, Step
from holdfast.flow.file.variables import start_values
from holdfast.flow.template.limits import Placeholder, Unknown, as_text
from holdfast.flow.template.render import Filler, Frame

SHOWN = 10  # items of a for_each that are shown


class Planned(Struct, frozen=True):
    """A step that a run would come to.

    ``happens`` is False if its condition does not hold, and None if that is not known yet. ``what`` is the action with
    its templates filled in, ``details`` what goes with it, and ``filled`` everything of a `run`, `http` or `call` (its
    environment variables, headers, arguments). ``depth`` is how many steps it is inside of.
    """

    id: str
    action: str
    what: str
    place: str
    depth: int = 0
    happens: bool | None = True
    details: tuple[str, ...] = ()
    title: str | None = None
    undo: str | None = None
    filled: dict[str, Any] = {}


def plan(definition: Definition, vars: dict[str, Any], depth: int = 0) -> list[Planned]:
    """What a run of the flow would do."""
    frame = Frame.of(definition, "<run.id>", vars, {})
    planner = _Planner(definition, depth)
    for step in definition.steps:
        planner.add(step, frame, depth)
    return planner.found


class _Planner:
    def __init__(self, definition: Definition, depth: int) -> None:
        self._definition = definition
        self.found: list[Planned] = []

    def add(self, step: Step, frame: Frame, depth: int, happens: bool | None = True) -> None:
        filler = Filler(self._definition, step, frame)
        if step.when is not None and happens is not False:
            holds = _condition(filler, step.when)
            happens = holds if holds is not True else happens
        if step.for_each is not UNSET and happens is not False:
            self._each(step, frame, filler, depth, happens)
        else:
            inside = frame.within(index=Placeholder("index")) if step.is_repeated else frame
            self._one(step, inside, depth, happens)
            if inside is not frame:
                frame.take(inside)
        known = {"status": "skipped"} if happens is False else Placeholder(f"steps.{step.id}")
        frame.steps[step.id] = known

    def _each(self, step: Step, frame: Frame, filler: Filler, depth: int, happens: bool | None) -> None:
        items = _tried(lambda: filler.value("for_each", step.for_each))
        known = items if isinstance(items, list) else [Placeholder("item")]
        for index, item in enumerate(known[:SHOWN]):
            self._one(step, frame.within(item=item, index=index), depth, happens, f"item {_text(item)}")
        if len(known) > SHOWN:
            more = f"… and {len(known) - SHOWN} more items"
            self.found.append(Planned(step.id, step.action, more, self._definition.place(step), depth, happens))

    def _one(self, step: Step, frame: Frame, depth: int, happens: bool | None, item: str | None = None) -> None:
        filler = Filler(self._definition, step, frame)
        details = [item] if item else []
        self.found.append(
            Planned(
                step.id,
                step.action,
                _tried_text(lambda: self._what(step, frame, filler)) if happens is not False else "skipped",
                self._definition.place(step),
                depth,
                happens,
                tuple(details + _details(step)),
                step.title,
                self._undo(step, frame) if happens is not False else None,
                self._filled(step, filler) if happens is not False else {},
            )
        )
        for part in step.inner:
            self.add(part, frame, depth + 1, happens)
        if step.flow is not None and happens is not False:
            self._flow(step, filler, depth)

    def _flow(self, step: Step, filler: Filler, depth: int) -> None:
        assert step.flow is not None
        child = self._definition.flows[step.flow]
        given = {name: _tried(lambda value=value: filler.value("with", value)) for name, value in step.given.items()}
        sure = {name: value for name, value in given.items() if not isinstance(value, Placeholder)}
        open_vars = {name: given[name] for name in given if name not in sure}
        lenient = {name: var for name, var in child.vars.items() if name not in open_vars}
        vars = {**start_values(_with_vars(child, lenient), sure), **open_vars}
        self.found += plan(child, vars, depth + 1)

    def _what(self, step: Step, frame: Frame, filler: Filler) -> str:
        if step.run is not None or step.http is not None or step.call is not None:
            return filler.action().told()
        if step.ask is not None:
            return filler.text("ask", step.ask.prompt)
        if step.set is not None:
            values = {name: _tried(lambda value=value: filler.value("set", value)) for name, value in step.set.items()}
            frame.assign({name: _known(value, f"vars.{name}") for name, value in values.items()})
            return ", ".join(f"{name} = {_text(value)}" for name, value in values.items())
        if step.wait is not None:
            wait = step.wait
            return (
                f"until {filler.text('wait', wait.until)}"
                if wait.until
                else f"for {_text(filler.value('wait', wait.span))}"
            )
        return step.flow or f"{len(step.inner)} steps"

    def _filled(self, step: Step, filler: Filler) -> dict[str, Any]:
        if step.action not in ACTS:
            return {}
        try:
            action = stored(filler.action())
        except (Unknown, TemplateRefused):
            return {}
        shown: dict[str, Any] = told(action)
        return {name: value for name, value in shown.items() if name not in ("step", "timeout", "again_on")}

    def _undo(self, step: Step, frame: Frame) -> str | None:
        if step.undo is None:
            return None
        undo, inside = step.undo, frame.within()
        inside.steps[step.id] = Placeholder(f"steps.{step.id}")
        return _tried_text(lambda: Filler(self._definition, step, inside).undo(undo).told())


def _details(step: Step) -> list[str]:
    found = []
    if step.loop is not None or step.until is not None:
        rounds = f"up to {step.loop} rounds" if step.loop else "rounds"
        found.append(rounds + (f" until {step.until}" if step.until else ""))
    if step.retry is not None:
        found.append(f"tried again up to {step.retry.times}×")
    if step.timeout is not None:
        found.append(f"for no longer than {step.timeout:g} s")
    if step.breakpoint is not None:
        found.append(f"stops {step.breakpoint} it")
    if step.goto is not None:
        found.append(f"if it fails: goto {step.goto}")
    elif step.on_failure != "abort":
        found.append(f"if it fails: {step.on_failure}")
    return found


def _with_vars(definition: Definition, vars: dict[str, Any]) -> Definition:
    from msgspec.structs import replace

    return replace(definition, vars=vars)


def _condition(filler: Filler, source: str) -> bool | None:
    try:
        return filler.condition("when", source)
    except (Unknown, TemplateRefused):
        return None


def _tried(fill: Any) -> Any:
    try:
        return fill()
    except (Unknown, TemplateRefused):
        return Placeholder("not known yet")


def _tried_text(fill: Any) -> str:
    try:
        text: str = told(fill())
    except Unknown:
        return "<not known yet>"
    except TemplateRefused as refused:
        return f"<{refused.why}>"
    return text


def _known(value: Any, path: str) -> Any:
    return Placeholder(path) if isinstance(value, Placeholder) else value


def _text(value: Any) -> str:
    return str(told(as_text(value)))
