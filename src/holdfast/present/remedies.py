"""What helps a run that does not continue: acts that the terminal shows as commands and the page as buttons.

The engine names calls of Python in its reasons and errors, such as ``run.unblock()``. `reworded` replaces each of them
by the words of whoever shows the text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.engine.control.questions import is_breakpoint
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.inputs import QUEUE
from holdfast.kernel.model import Kind, Status
from holdfast.present.words import FLOW
from holdfast.views import Question, RunInfo

Act = Literal[
    "answer", "cancel", "effects", "fork", "questions", "resolve", "resume", "retry", "rollback", "show", "unblock",
    "watch", "worker",
]  # fmt: skip


class Remedy(Struct, frozen=True, kw_only=True):
    """An act that helps a run, named as the command that does it. ``options`` is what else that command needs."""

    act: Act
    run: str | None = None
    key: str | None = None  # the step to resolve
    to: int | None = None  # the entry to roll back to, or to fork at
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the command."""
        return tuple(word for word in (self.run, self.key) if word is not None)

    @property
    def words(self) -> tuple[str, ...]:
        """The options of the command."""
        place = () if self.to is None else ("--at" if self.act == "fork" else "--to", str(self.to))
        return *place, *self.options


def command_line(name: str, *arguments: str, options: Sequence[str] = ()) -> str:
    """A command as a person would type it, also about a run whose id looks like an option, or has a line break."""
    words = [name, *arguments, *options]
    if any(argument.startswith("-") for argument in arguments):
        words = [name, *options, "--", *arguments]
    return " ".join(["holdfast", *map(quoted, words)])


def quoted(word: str) -> str:
    """A word for a shell. Characters that a terminal would not show, or obey, are written as escapes."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_escape(char) for char in word) + "'"


def _escape(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode())


# --- the remedies of a run


def remedies_of(
    run: Run, info: RunInfo, questions: Sequence[Question] = (), *, died: bool = False, modules: tuple[str, ...] = ()
) -> list[Remedy]:
    """What a person can do so that the run continues, the best first. ``modules`` names the code of its workflow."""
    if info.away is not None:
        return [Remedy(act="show", run=info.id, options=("--store", info.away))]
    modules = modules or module_words(run)
    if info.rolls_back is not None and info.status is Status.BLOCKED:  # it tries the undo again, or passes over it
        to = int(run.entry(info.rolls_back).contents["to"])
        return [Remedy(act="rollback", run=info.id, to=to, options=(*force, *modules)) for force in ((), ("--force",))]
    driven = info.queue is not None
    also = ("--resume", *modules) if driven else ()
    resume = [Remedy(act="resume", run=info.id, options=modules)] if driven else []
    asked = [one for one in questions if one.declined or not is_breakpoint(one)]
    match info.status:
        case Status.WAITING | Status.READY if len(asked) == 1:
            return [Remedy(act="answer", run=info.id, options=also)]
        case Status.WAITING | Status.READY if asked:
            return [Remedy(act="answer", run=info.id, options=("--question", asked[0].id)), *resume]
        case Status.WAITING | Status.READY:
            return resume
        case Status.RUNNING:
            return resume if died else [Remedy(act="watch", run=info.id)]
        case Status.FAILED | Status.CANCELLED:
            return [Remedy(act="retry", run=info.id, options=also)]
        case Status.BLOCKED:
            return _unblocking(run, info, also)
    return []


def _unblocking(run: Run, info: RunInfo, also: tuple[str, ...]) -> list[Remedy]:
    """How a blocked run continues: a person says what became of uncertain steps, or just lets it."""
    said = ("--done", "--result", "JSON"), ("--not-done",)
    uncertain = [step.key for step in run.steps() if step.status == "uncertain"]
    found = [
        Remedy(act="resolve", run=info.id, key=key, options=(*words, *also)) for key in uncertain for words in said
    ]
    reason = info.reason or ""
    if not found or "run.resolve(" not in reason or "run.unblock()" in reason:
        found.append(Remedy(act="unblock", run=info.id, options=also))
    return found


def module_words(run: Run) -> tuple[str, ...]:
    """The option that names the module of the run's workflow, as far as it is known."""
    made = run.entry(0)
    module = made.contents.get("module") if made.kind == Kind.CREATED else None
    if not isinstance(module, str) or module.startswith("holdfast."):  # a flow's, say, which needs none
        return ()
    return "--module", "FILE.py" if module == "__main__" else module


def worker_for(queue: str | None, workflow: str | None = None, modules: Sequence[str] = ()) -> Remedy:
    """A worker that takes from the queue; ``modules`` are the names of those that declare the workflow."""
    words = ["--flows"] if workflow == FLOW else [*modules] or ["MODULE"]
    return Remedy(act="worker", options=(*words, *(("--queue", queue) if queue not in (None, QUEUE) else ())))


# --- the calls that the engine names


def reworded(text: str, run: str | None, words: Callable[[Remedy], str]) -> str:
    """The same text, with the words for what its calls of Python would do."""
    for pattern, act, options in _CALLS:

        def instead(found: re.Match[str], act: Act = act, options: tuple[str, ...] = options) -> str:
            known = found.groupdict()
            key, to = known.get("key"), known.get("to")
            remedy = Remedy(
                act=act,
                run=run or "RUN",
                key=key.strip("'\"") if key is not None else None,
                to=int(to) if to is not None else None,
                options=options,
            )
            return words(remedy)

        text = pattern.sub(instead, text)
    return text


_NAMED: tuple[tuple[str, Act, tuple[str, ...]], ...] = (
    (r"`?run\.unblock\(\)`?", "unblock", ()),
    (r"`?run\.unblock\(accept=True\)`?", "resume", ("--accept",)),
    (r"`?run\.retry\(\)`?", "retry", ()),
    (r"`?run\.resume\(\)`?", "resume", ()),
    (r"`?run\.fork\(\)`?", "fork", ()),
    (r"run\.fork\(at=(?P<to>\d+)\)", "fork", ()),
    (r"`?run\.cancel\(\)`?", "cancel", ()),
    (r"run\.cancel\(force=True\)", "cancel", ("--force",)),
    (r"`?run\.questions\(\)`?", "questions", ()),
    (r"`?run\.effects\(\)`?", "effects", ()),
    (r"`?run\.resolve\(\.\.\.\)`?", "resolve", ()),
    (r"run\.rollback\(to=(?P<to>\d+)\)", "rollback", ()),
    (r"run\.resolve\((?P<key>'[^']*'|\"[^\"]*\"), done=True, result=\.\.\.\) or done=False", "resolve", ()),
)
_CALLS = [(re.compile(pattern), act, options) for pattern, act, options in _NAMED]
