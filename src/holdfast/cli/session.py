"""Driving a run from a terminal: it is shown, asked about, left resumable by Ctrl-C, and told how it ended."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import Any, NoReturn

from holdfast.cli.codes import BY_STATUS, INTERRUPTED, TERMINATED
from holdfast.cli.flows import FLOW, output_to
from holdfast.cli.progress import Progress, quiet, view_for
from holdfast.cli.prompts import ask, can_ask
from holdfast.cli.remedies import command_line, in_commands
from holdfast.cli.rendering import COLOURS, MARKS, clock, console, heard_or_not, one_line, pretty, say, span, write_json
from holdfast.cli.story import Follower
from holdfast.cli.unfinished import rolling_back
from holdfast.engine.app import Holdfast
from holdfast.engine.control.questions import is_breakpoint
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.inputs import QUEUE
from holdfast.errors import QuestionClosed, RunNotFound
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.views import Question, RunInfo

LOOK = 0.25  # seconds between two looks at what a run waits for
DIED = "by nobody: its process has died"
_PUZZLING = (Status.FAILED, Status.BLOCKED)


class Session:
    """One run that is driven here, and the person or program that looks on."""

    def __init__(
        self,
        hf: Holdfast,
        id: str,
        *,
        as_json: bool = False,
        silent: bool = False,
        asks: bool = True,
        by: str | None = None,
        again: tuple[str, ...] = (),
    ) -> None:
        self.hf = hf
        self.id = id
        self.as_json = as_json
        self.silent = silent
        self.asks = asks and not as_json and can_ask()
        self.by = by
        self.again = again  # what is to be added to `holdfast resume ID`

    def drive(self, begin: Callable[[], Run], *, after: int = -1) -> int:
        """Call ``begin``, which drives the run, and go on until it rests; the exit status."""
        if self.silent:
            with quiet():
                return self._guarded(lambda: self._carry_on(begin(), None))
        follower, view = Follower(self.hf, self.id, after=after), view_for(as_json=self.as_json, asks=self.asks)
        with Progress(follower, view) as progress, output_to(view):
            return self._guarded(lambda: self._carry_on(begin(), progress), progress)

    def _guarded(self, work: Callable[[], Run], progress: Progress | None = None) -> int:
        try:
            with told_to_end(), prints_elsewhere(self.as_json):
                run = work()
        except KeyboardInterrupt as interrupt:
            if progress is not None:
                progress.leave()
            return self._left(TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED)
        if progress is not None:
            progress.pause()
        return self.close(run)

    def _carry_on(self, run: Run, progress: Progress | None) -> Run:
        while self.asks and (questions := self._rest(run)):
            if progress is not None:
                progress.pause()
            try:
                self._ask(questions)
            except EOFError:  # the person does not answer now
                say("")
                return run
            if progress is not None:
                progress.resume()
            run.resume()
        if not self.asks:
            self._rest(run)
        return run

    def _rest(self, run: Run) -> list[Question]:
        """Go on until the run has ended, is parked, asks, or waits for what does not come by itself; what it asks."""
        while True:
            infos = [one.info() for one in open_runs(self.hf, run)]
            if not infos or infos[0].status in (Status.BLOCKED, Status.RUNNING):
                return []
            if questions := open_questions(self.hf, run):
                return questions
            if all(one.status in (Status.WAITING, Status.BLOCKED) and one.wake_at is None for one in infos):
                return []
            run.wait(timeout=LOOK)

    def _ask(self, questions: list[Question]) -> None:
        for question in questions:
            answer = partial(self.hf.get(question.run).answer, question=question, by=self.by)
            try:
                ask(question, answer)
            except QuestionClosed:
                say("  It was answered elsewhere, or is no longer asked.")

    # --- how it ends

    @property
    def resume_command(self) -> str:
        """What goes on with the run."""
        return command_line("resume", self.id, options=self.again)

    def _left(self, code: int) -> int:
        try:
            info = self.hf.get(self.id).info()
        except RunNotFound:  # it was not begun yet
            info = None
        if self.as_json:
            write_json({"interrupted": True, "run": info, "resume": self.resume_command if info else None})
        elif info is None:
            say("Interrupted before it began.", err=True)
        elif info.status in ENDED:
            say(f"Interrupted; {one_line(self.id)} had {info.status} already.", err=True)
        else:
            say("\nInterrupted. What was done is kept. Go on with:", err=True)
            say(f"  {self.resume_command}", err=True)
        return code

    def close(self, run: Run) -> int:
        """Tell how the run stands, and how to go on; the exit status."""
        info = run.info()
        data: dict[str, Any] = {"run": info, **outcome(run, info)}
        if info.status not in ENDED:
            data["questions"] = open_questions(self.hf, run)
        with heard_or_not():
            if self.as_json:
                write_json(data)
            elif self.silent and info.status is Status.COMPLETED:
                pretty(data["result"])
            else:
                self._tell(run, info, data)
        return BY_STATUS[info.status]

    def _tell(self, run: Run, info: RunInfo, data: dict[str, Any]) -> None:
        from rich.text import Text

        where = console()
        mark = Text().append(f"{MARKS[info.status]} {info.status}", style=COLOURS[info.status])
        took = (info.updated_at - info.created_at).total_seconds()
        told = {
            Status.COMPLETED: f"in {span(took)}",
            Status.RUNNING: self._driven(info),
            Status.WAITING: _awaited(info, data.get("questions", ())),
        }.get(info.status, data.get("error") or in_commands(info.reason or "", info.id))
        where.print(mark.append(f"  {one_line(info.id)}", style="bold").append(f"  {one_line(told)}" if told else ""))
        if info.status is Status.COMPLETED:
            if data["result"] is not None:
                pretty(data["result"])
            return
        for question in data.get("questions", ()):
            where.print(Text(f"  ? {one_line(question.prompt)}", style="yellow"))
        ways = hints(self.hf, run, info, data.get("questions", ()), self.again)
        for way in [command_line("show", info.id), *ways] if info.status in _PUZZLING else ways:
            where.print(Text(f"  {way}", style="dim"), soft_wrap=True)

    def _driven(self, info: RunInfo) -> str:
        """Who drives a run that is not driven here any more."""
        dead = dead_of(self.hf, [info])
        told = [DIED if dead else "by another process", *rolling_back(self.hf, [info], dead).values()]
        return "; ".join(told)


def _awaited(info: RunInfo, questions: list[Question]) -> str:
    """What a run waits for, if it does not ask."""
    if info.wake_at is not None:
        return f"until {clock(info.wake_at)}"
    return "" if questions else "for a message, or for another run"


def hints(hf: Holdfast, run: Run, info: RunInfo, questions: list[Question], again: tuple[str, ...] = ()) -> list[str]:
    """The commands by which a person goes on, the best of them first. ``again`` is what they need to drive the run."""
    id, asked = info.id, [one for one in questions if one.declined or not is_breakpoint(one)]
    if info.away is not None:
        return [command_line("show", id, options=("--store", info.away))]
    if info.rolls_back is not None and info.status is Status.BLOCKED:
        to = str(run.entry(info.rolls_back).contents["to"])
        return [command_line("rollback", id, options=("--to", to, *words, *module_words(run))) for words in _ROLLS]
    if info.queue is None and info.status is not Status.RUNNING:  # whoever has the loop goes on with it
        return [command_line("answer", id)] if asked else []
    again = again or module_words(run)
    resume, also = command_line("resume", id, options=again), ("--resume", *again)
    match info.status:
        case Status.WAITING | Status.READY if len(asked) == 1:
            return [command_line("answer", id, options=also)]
        case Status.WAITING | Status.READY if asked:
            return [command_line("answer", id, options=("--question", asked[0].id)), resume]
        case Status.WAITING | Status.READY:
            return [resume]
        case Status.RUNNING:
            return [resume if died(hf, info) else command_line("watch", id)]
        case Status.FAILED | Status.CANCELLED:
            return [command_line("retry", id, options=also)]
        case Status.BLOCKED:
            return _out_of_the_block(run, id, also)
    return []


_ROLLS: tuple[tuple[str, ...], ...] = (), ("--force",)  # it tries the undo again, or passes over it


def _out_of_the_block(run: Run, id: str, also: tuple[str, ...]) -> list[str]:
    """How a parked run goes on: a person says what became of a step that died in the act, or just lets it."""
    for step in run.steps():
        if step.status == "uncertain":
            said = ("--done", "--result", "JSON"), ("--not-done",)
            return [command_line("resolve", id, step.key, options=(*words, *also)) for words in said]
    return [command_line("unblock", id, options=also)]


def died(hf: Holdfast, info: RunInfo) -> bool:
    """Whether whoever drove the run has died; it can be claimed."""
    return info.id in dead_of(hf, [info])


def dead_of(hf: Holdfast, infos: Iterable[RunInfo]) -> set[str]:
    """The ids of those of these runs whose process has died; the store is asked only if one of them is running."""
    running = {info.id for info in infos if info.status is Status.RUNNING}
    return running.intersection(hf.recover(dry_run=True)) if running else set()


def module_words(run: Run) -> tuple[str, ...]:
    """What to add to a command that drives the run: the module of its workflow, as far as it is known."""
    made = run.entry(0)
    module = made.contents.get("module") if made.kind == Kind.CREATED else None
    if not isinstance(module, str) or module.startswith("holdfast."):  # a flow's, say, which needs none
        return ()
    return "--module", "FILE.py" if module == "__main__" else module


def worker_command(run: Run, info: RunInfo, again: tuple[str, ...] = ()) -> str:
    """The command of a worker that takes the run. ``again`` is what names its module, if somebody did."""
    words = list((again or module_words(run))[1:]) if info.workflow != FLOW else ["--flows"]
    return command_line("worker", options=[*(words or ["MODULE"]), *queue_words(info.queue)])


def queue_words(queue: str | None) -> list[str]:
    """What to add to the command of a worker for this queue."""
    return ["--queue", queue] if queue not in (None, QUEUE) else []


def is_attended(hf: Holdfast) -> bool:
    """Whether the store knows of a live process beside this one that has driven something.

    Of which queues it takes is not known, nor of one that never found anything to do.
    """
    return any(one.alive and one.worker != hf.client.engine.worker.name for one in hf.client.store.workers())


def outcome(run: Run, info: RunInfo) -> dict[str, Any]:
    """What came of a run that has ended: its result, or its error."""
    if info.status not in ENDED:
        return {}
    checkpoint = run.checkpoint()
    if info.status is Status.COMPLETED:
        return {"result": checkpoint.raw_result}
    node = checkpoint.failed_at
    return {"error": checkpoint.error, **({"failed_at": node} if node is not None else {})}


def open_runs(hf: Holdfast, run: Run) -> Iterator[Run]:
    """The run, and the children of it, that have not ended."""
    if run.status in ENDED:
        return
    yield run
    after: str | None = None
    while True:
        page = run.history(kind=Kind.CHILD, after=after, limit=500)
        for info in page:
            try:
                part = hf.get(str(run.entry(info.seq).contents["id"]))
            except RunNotFound:  # it was deleted
                continue
            yield from open_runs(hf, part)
        if (after := page.next) is None:
            return


def open_questions(hf: Holdfast, run: Run) -> list[Question]:
    """What the run and its children ask."""
    return [question for one in open_runs(hf, run) for question in one.questions()]


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run in as good order as Ctrl-C does."""


@contextmanager
def told_to_end() -> Iterator[None]:
    """Let SIGTERM be like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def prints_elsewhere(as_json: bool) -> Iterator[None]:
    """What a workflow prints must not get between lines of JSON."""
    if as_json:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield
