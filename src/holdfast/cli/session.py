"""Driving a run from a terminal: it is shown, asked about, left resumable by Ctrl-C, and told how it ended."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.cli.codes import BY_STATUS, INTERRUPTED, TERMINATED
from holdfast.cli.flows import output_to
from holdfast.cli.progress import Progress, quiet, view_for
from holdfast.cli.prompts import ask, can_ask
from holdfast.cli.remedies import command_line, in_commands, typed
from holdfast.cli.rendering import COLOURS, console, heard_or_not, pretty, say, write_json
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import QuestionClosed, RunNotFound
from holdfast.kernel.model import ENDED, Status
from holdfast.present.follower import Follower
from holdfast.present.outcome import Outcome, outcome_of
from holdfast.present.questions import open_questions, open_runs
from holdfast.present.remedies import Remedy, remedies_of
from holdfast.present.status import Standing, standing
from holdfast.present.words import joined, mark, one_line, span, word
from holdfast.views import Question, RunInfo

if TYPE_CHECKING:
    from rich.text import Text

LOOK = 0.25  # seconds between two looks at what a run waits for
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
        data: dict[str, Any] = {"run": info, **outcome_json(info, outcome_of(run, info))}
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

        where, stands, questions = console(), standing(self.hf, info), data.get("questions", ())
        told = data.get("error") or in_commands(stands.told, info.id)
        if info.status is Status.COMPLETED:
            told = f"in {span((info.updated_at - info.created_at).total_seconds())}"
        elif info.status is Status.RUNNING and not stands.died:
            told = joined("by another process", stands.told, by="; ")
        where.print(title(info, stands).append(f"  {one_line(told)}" if told else ""))
        if info.status is Status.COMPLETED:
            if data["result"] is not None:
                pretty(data["result"])
            return
        for question in questions:
            where.print(Text(f"  {mark('asks')} {one_line(question.prompt)}", style="yellow"))
        ways = remedies_of(run, info, questions, died=stands.died, modules=self.again)
        if info.status in _PUZZLING:
            ways.insert(0, Remedy(act="show", run=info.id))
        for way in ways:
            where.print(Text(f"  {typed(way)}", style="dim"), soft_wrap=True)


def title(info: RunInfo, stands: Standing) -> Text:
    """The sign and word for how a run stands, and its id."""
    from rich.text import Text

    text = Text().append(f"{mark(stands.look)} {word(stands.look)}", style=COLOURS[stands.look])
    return text.append(f"  {one_line(info.id)}", style="bold")


def outcome_json(info: RunInfo, ended: Outcome) -> dict[str, Any]:
    """How a run ended, as commands give it: its result, or its error."""
    if info.status not in ENDED:
        return {}
    if info.status is Status.COMPLETED:
        return {"result": ended.result}
    return {"error": ended.error, **({"failed_at": ended.failed_at} if ended.failed_at is not None else {})}


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
