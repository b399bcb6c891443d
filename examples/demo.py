"""What `make demo` shows: an agent is killed, goes on, waits for a person, is claimed once, forked and rolled back.

Everything is real: the agent (`agent.py`) runs in processes of its own, the kill is SIGKILL, the store is a SQLite file
in a fresh folder that is removed at the end. Each fact is checked; the first that is not true ends the demo with
status 1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import agent
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table

import holdfast
from holdfast.errors import AnswerRefused, Claimed

RUN = "report-7"
CHAPTERS = 7
WILL = {
    "undo": "undo it",
    "irreversible": "leave it: it cannot be undone",
    "uncertain": "leave it: killed in the act, then made again (the same file, undone above)",
}


class Screen:
    """The terminal: panels, tables and colours; plain lines if it is not a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self.rich = self.console.is_terminal and (self.console.encoding or "").lower().startswith("utf")
        self.chapter_number = 0

    def title(self, text: str, more: str) -> None:
        if self.rich:
            self.console.print(Panel(more, title=f"[bold]{text}[/]", title_align="left", border_style="cyan"))
        else:
            self.console.print(f"{text}\n{more}", markup=False)

    def chapter(self, text: str) -> None:
        self.chapter_number += 1
        at = f"{self.chapter_number}/{CHAPTERS}"
        if self.rich:
            bar = "━" * self.chapter_number + "[dim]" + "─" * (CHAPTERS - self.chapter_number) + "[/dim]"
            self.console.print(f"\n[bold cyan]{at} {bar} {escape(text)}[/]")
        else:
            self.console.print(f"\n{at} {text}", markup=False)

    def tell(self, text: str) -> None:
        self.console.print(f"  {text}", markup=False)

    def quiet(self, text: str) -> None:
        self.console.print(f"  [dim]{escape(text)}[/]")

    def fact(self, is_true: bool, text: str) -> None:
        """Something that must be true."""
        if not is_true:
            self.console.print(f"  [bold red]not true:[/] {escape(text)}")
            raise SystemExit(1)
        sign = "[bold green]✓[/]" if self.rich else "ok:"
        self.console.print(f"  {sign} {escape(text)}")

    def timeline(self, run: holdfast.Run) -> None:
        """The run's entries; those that a rollback abandoned are in brackets."""
        if not self.rich:
            entries = [
                f"{entry.seq} {entry.kind}" if entry.live else f"({entry.seq} {entry.kind})" for entry in run.history()
            ]
            self.console.print("  the journal now, abandoned entries in brackets:\n  " + "  ".join(entries))
            return
        drawn = [
            f"[green]{entry.seq} {entry.kind}[/]" if entry.live else f"[dim strike]{entry.seq} {entry.kind}[/]"
            for entry in run.history()
        ]
        self.console.print("  the journal now, abandoned entries struck out:")
        self.console.print(Padding(Columns(drawn, padding=(0, 3)), (0, 0, 0, 2)))

    def table(self, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        if self.rich:
            table = Table(*head, box=SIMPLE_HEAD, border_style="dim", header_style="bold")
            for row in rows:
                table.add_row(*(f"[dim]{cell}[/]" if cell == "0" else cell for cell in row))
            self.console.print(Padding(table, (0, 0, 0, 1)))
        else:
            lines = [list(head), *map(list, rows)]
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            for line in lines:
                cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
                self.console.print("  " + " | ".join(cells).rstrip(), markup=False)


class Agent:
    """The agent in a process of its own. Its lines are shown, and kept."""

    def __init__(self, screen: Screen, store: str, run: str, folder: Path, *options: str, slow: float = 0.0) -> None:
        self.screen = screen
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, agent.__file__, store, run, str(folder), *options],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TOOL_SECONDS": str(slow), "PYTHONUTF8": "1"},
        )

    def read(self, until: str | None = None) -> None:
        """Show its lines up to one that ends like this, or up to the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            self.screen.quiet(f"pid {self.process.pid}  {line.strip()}")
            if until is not None and self.lines[-1].endswith(until):
                return

    def end(self) -> int:
        self.read()
        return self.process.wait()

    def calls(self, what: str) -> int:
        """How often it really called something."""
        return sum(line.startswith(("tool", "model")) and what in line for line in self.lines)


def listing(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.iterdir())) or "(empty)"


def kill_and_go_on(screen: Screen, store: str, folder: Path) -> None:
    screen.chapter("An agent works, and is killed in its third tool call")
    first = Agent(screen, store, RUN, folder, slow=0.4)
    first.read(until="summary.md")
    screen.tell(f"kill -9 {first.process.pid}")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    screen.fact(first.process.returncode == -signal.SIGKILL, f"process {first.process.pid} was ended by SIGKILL")
    with holdfast.open(store) as hf:
        effects = {effect.target: effect.status for effect in hf.get(RUN).effects()}
    screen.fact(
        effects == {"outline.md": "done", "draft.md": "done", "summary.md": "uncertain"},
        f"on record: {', '.join(f'{target} {status}' for target, status in effects.items())}",
    )
    screen.fact(not (folder / "summary.md").exists(), f"the folder has {listing(folder)}")

    screen.chapter("Started again with the same run id, it goes on")
    second = Agent(screen, store, RUN, folder)
    status = second.end()
    names = ["turn 1", "outline.md", "turn 2", "draft.md", "turn 3", "summary.md"]
    counts = [(name, first.calls(name), second.calls(name)) for name in names]
    screen.table(
        ["calls of", "first process", "second process"], [[name, str(one), str(two)] for name, one, two in counts]
    )
    screen.fact(
        [two for _, _, two in counts] == [0, 0, 0, 0, 0, 1],
        "what was done was not done again; only the call that died in the act was repeated",
    )
    screen.fact(status == agent.WAITING, "then it paused for a person, and its process ended")


def ask(screen: Screen, store: str) -> None:
    screen.chapter("A person is asked")
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        [question] = run.questions()
        screen.tell(question.prompt)
        for wrong in ({"send": "maybe"}, {"why": 7}):
            try:
                run.answer(wrong)
            except AnswerRefused as refused:
                screen.fact(True, f"{wrong} is refused: {'; '.join(refused.problems)}")
            else:
                screen.fact(False, f"{wrong} is refused")
        screen.fact(run.questions() == (question,), "a refused answer consumes nothing")
        run.answer({"send": "yes"}, by="demo")
        screen.fact(run.status == "ready", "the answer 'yes' makes the run ready to go on")


def ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"


def claimant(store: str, folder: str) -> int:
    """Another process of this script: claim the run when told to, and go on with it if that succeeds."""
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            with run.claim():
                print(f"won (this is its {ordinal(run.epoch or 0)} holder)", flush=True)
                sys.stdin.readline()
                return agent.work(run, folder)
        except Claimed as problem:
            print(f"lost: {problem}", flush=True)
            return agent.HELD


def race(screen: Screen, store: str, folder: Path) -> None:
    screen.chapter("Two processes claim the run at the same moment")
    command = [sys.executable, __file__, "--claimant", store, str(folder)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        racer.stdout.readline()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
    said = {racer.pid: racer.stdout.readline().strip() for racer in racers if racer.stdout}
    for pid, line in said.items():
        screen.quiet(f"pid {pid}  {line}")
    rest = [racer.communicate("go on\n", timeout=20)[0] for racer in racers]
    screen.fact(sorted(line.split()[0] for line in said.values()) == ["lost:", "won"], "exactly one of two won")
    screen.fact(
        sorted(racer.returncode for racer in racers) == [agent.COMPLETE, agent.HELD]
        and "".join(rest).count("send_message") == 1,
        "the winner completed the run; the message was sent once",
    )
    screen.fact((folder / "outbox.txt").read_text().count("to customer") == 1, f"the folder has {listing(folder)}")


def fork(screen: Screen, store: str, folder: Path, other: Path) -> None:
    screen.chapter("Forked from an earlier checkpoint, with another instruction")
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        before = run.checkpoint()
        saves = [entry.seq for entry in run.history(kind="saved")]
        copy = run.fork(at=saves[1], id=f"{RUN}-short")
        screen.tell(f"{copy.id} shares the entries 0 to {saves[1]} of {RUN}")
        screen.fact(
            copy.checkpoint().state == run.checkpoint(saves[1]).state, "it begins with the state of that moment"
        )
    third = Agent(screen, store, f"{RUN}-short", other, "--say", "Write the summary in one line.")
    third.end()
    with holdfast.open(store) as hf:
        screen.fact(hf.get(RUN).checkpoint().state == before.state, f"{RUN} is as it was")
    screen.fact(
        third.calls("turn 1") + third.calls("outline.md") == 0 and (other / "summary.md").read_text() == "All is well.",
        "the fork called only what comes after the fork point, and wrote a shorter summary",
    )


def roll_back(screen: Screen, store: str, folder: Path, other: Path) -> None:
    screen.chapter("Rolled back, with what it did undone")
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        to = run.history(kind="saved").items[0].seq
        screen.tell(f"before: {listing(folder)}")
        plan = run.plan_rollback(to)
        screen.table(
            ["effect", "at", "a rollback will"],
            [
                [f"{step.effect.tool} {step.effect.target}", str(step.effect.seq), WILL[step.action]]
                for step in plan.steps
            ],
        )
        report = run.rollback(to)
        screen.tell(f"after:  {listing(folder)}")
        screen.fact(
            [effect.target for effect in report.undone] == ["summary.md", "draft.md"]
            and listing(folder) == "outbox.txt, outline.md",
            "the files written after that checkpoint are gone, newest first",
        )
        screen.fact(
            [effect.target for effect in report.irreversible] == ["customer"],
            "the sent message cannot be undone, and the report says so",
        )
        screen.fact(listing(other) == "summary.md" and len(run.checkpoint().state) == 3, "the fork's files stay")
        screen.timeline(run)


def audit(screen: Screen, store: str) -> None:
    screen.chapter("Nothing was lost, and nothing was changed")
    with holdfast.open(store) as hf:
        for info in hf.runs():
            report = hf.audit(info.id)
            screen.fact(
                report.entries == info.seq + 1,
                f"{info.id} ({info.status}): the hash chain of {report.entries} entries verifies",
            )


def main() -> int:
    screen, started = Screen(), time.monotonic()
    screen.title("Holdfast", "An agent loop that survives being killed. Each line with a sign was checked just now.")
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as scratch:
        store, folder, other = f"sqlite:///{scratch}/runs.db", Path(scratch, "out"), Path(scratch, "out-short")
        folder.mkdir()
        kill_and_go_on(screen, store, folder)
        ask(screen, store)
        race(screen, store, folder)
        fork(screen, store, folder, other)
        roll_back(screen, store, folder, other)
        audit(screen, store)
    screen.console.print()
    screen.title(
        f"All true, in {time.monotonic() - started:.1f} s",
        "examples/agent.py             the agent loop that you just saw: copy it\n"
        "docs/tutorial/first-run.md    the same in ten minutes, by hand\n"
        "docs/index.md                 all documents",
    )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--claimant"]:
        raise SystemExit(claimant(*sys.argv[2:]))
    raise SystemExit(main())
