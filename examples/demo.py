"""What `make demo` shows: an order is killed, taken over by one of two workers, answered, forked and rolled back.

Everything is real: the order (`order.py`) runs in processes of its own, the kill is SIGKILL, the store is a SQLite file
and the shop a few JSON files in a fresh folder that is removed at the end. Each fact is checked; the first that is not
true ends the demo with status 1.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import order
import shop
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table

import holdfast
from holdfast.errors import AnswerRefused

RUN = "A-17"
CHAPTERS = 7
PATIENCE = 15.0  # seconds to wait for another process
WILL = {
    "undo": "undo it",
    "irreversible": "leave it: it cannot be undone",
    "uncertain": "leave it: killed in the act, then made again (and that is undone)",
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
        if not self.rich:
            self.console.print(f"  ok: {text}", markup=False)
            return
        line = Table.grid(padding=(0, 1))  # so that what does not fit into a line begins below the text
        line.add_row("[bold green]✓[/]", escape(text))
        self.console.print(Padding(line, (0, 0, 0, 2)))

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


class Process:
    """The order's program in a process of its own. Its lines are shown, and kept."""

    def __init__(self, screen: Screen, name: str, *command: str, slow: float = 0.0) -> None:
        self.name = name
        self.lines: list[str] = []
        self._screen = screen
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, order.__file__, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"STEP_SECONDS": str(slow), "PYTHONUTF8": "1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._screen.quiet(f"{self.name:8} {line.strip()}")
            with self._news:
                self.lines.append(line.strip())
                self._news.notify_all()

    def wait_for(self, text: str) -> None:
        """Until it has said this."""
        with self._news:
            if not self._news.wait_for(lambda: any(text in line for line in self.lines), PATIENCE):
                self._screen.fact(False, f"{self.name} says {text!r}")

    def end(self, sent: signal.Signals | None = None) -> int:
        """Send it a signal, and wait for its end."""
        if sent is not None:
            self.process.send_signal(sent)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self._screen.fact(False, f"{self.name} ends")
            raise
        finally:
            self._reader.join(PATIENCE)

    def steps(self, what: str = "") -> int:
        """How often it really made a step."""
        return sum(line.startswith("step") and what in line for line in self.lines)


def shelf() -> dict[str, list[str]]:
    """The world as it is on disk."""
    bank, stock, parcels, mail = (shop.read(name) for name in ("bank", "stock", "parcels", "mail"))
    return {
        "charged": [f"{line['order']} {line['cents'] / 100:.2f}" for line in bank.values()],
        "in stock": [f"{name} {count}" for name, count in stock.items() if name != "kept"],
        "put aside": sorted(stock.get("kept", {}).values()),
        "parcels": sorted(parcels.values()),
        "letters": [f"{len(letters)} for {name}" for name, letters in mail.items()],
    }


def show_world(screen: Screen, *columns: tuple[str, dict[str, list[str]]]) -> None:
    names = list(columns[0][1])
    screen.table(
        ["the shop", *(title for title, _ in columns)],
        [[name, *(", ".join(world[name]) or "-" for _, world in columns)] for name in names],
    )


def until(screen: Screen, what: str, is_so: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    limit = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > limit:
            screen.fact(False, what)
        time.sleep(0.02)


def kill(screen: Screen, store: str) -> Process:
    screen.chapter("An order is worked on, and its process is killed")
    first = Process(screen, "process", "place", RUN, "4200", "lamp", "desk", slow=0.4)
    first.wait_for("reserve desk")
    screen.tell(f"kill -9 {first.process.pid}")
    status = first.end(signal.SIGKILL)
    screen.fact(status == -signal.SIGKILL, f"process {first.process.pid} was ended by SIGKILL")
    with holdfast.open(store) as hf:
        effects = {effect.target: effect.status for effect in hf.get(RUN).effects()}
    screen.fact(
        effects == {"card of A-17": "done", "lamp": "done", "desk": "uncertain"},
        f"on record: {', '.join(f'{target} {status}' for target, status in effects.items())}",
    )
    screen.fact(shelf()["charged"] == ["A-17 42.00"], "the card was charged")
    return first


def take_over(screen: Screen, store: str, first: Process, workers: list[Process]) -> None:
    screen.chapter("Two workers are started: exactly one of them takes it over")
    for worker in workers:
        worker.wait_for("is at work")
    with holdfast.open(store) as hf:
        until(
            screen,
            "the order waits for a person",
            lambda: hf.get(RUN).status == "waiting" and any(worker.steps() for worker in workers),
        )
    steps = ["charge", "reserve lamp", "reserve desk"]
    processes = [first, *workers]
    screen.table(
        ["step made by", *(process.name for process in processes)],
        [[step, *(str(process.steps(step)) for process in processes)] for step in steps],
    )
    screen.fact(sorted(worker.steps() for worker in workers) == [0, 1], "one worker went on, the other kept away")
    screen.fact(
        sum(worker.steps("charge") for worker in workers) == 0 and shelf()["charged"] == ["A-17 42.00"],
        "what was done was not done again: the card was charged once",
    )
    screen.fact(
        shelf()["in stock"] == ["lamp 2", "desk 0"],
        "the step that died in the act was made again, with the same key: one desk was put aside, not two",
    )


def ask(screen: Screen, store: str, workers: list[Process]) -> None:
    screen.chapter("It waits for a person, and nothing is held for it meanwhile")
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        [question] = run.questions()
        screen.tell(f"{question.prompt}  {', '.join(field.name for field in question.fields)}")
        screen.fact(run.info().holder is None, "nobody holds the run")
        for wrong in ({"ship": "perhaps"}, {"ship": True, "carrier": "pigeon"}):
            try:
                run.answer(wrong)
            except AnswerRefused as refused:
                screen.fact(True, f"{wrong} is refused: {'; '.join(refused.problems)}")
            else:
                screen.fact(False, f"{wrong} is refused")
        run.answer({"ship": True, "carrier": "post"}, by="demo")
        until(screen, "the order is completed", lambda: run.status == "completed")
        result = run.result()
    screen.fact(result == "A-17 went out by post", f"a worker went on with the answer: {result}")
    statuses = [worker.end(signal.SIGTERM) for worker in workers]
    screen.fact(statuses == [0, 0], "SIGTERM ends both workers in good order")
    made = [(worker.steps("ship"), worker.steps("write to")) for worker in workers]
    screen.fact(sorted(made) == [(0, 0), (1, 1)], "again exactly one of the two had gone on with it")
    show_world(screen, ("now", shelf()))


def fork(screen: Screen, store: str) -> None:
    screen.chapter("Forked: what if the answer had been another one?")
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        before = run.audit().head
        other = run.fork(answers={"ask#1": {"ship": True, "carrier": "courier"}}, id=f"{RUN}-courier")
        screen.tell(f"{other.id} shares the entries 0 to {other.info().forked_from[1]} of {RUN}")  # type: ignore[index]
        other.resume()
        result = other.result()
        screen.fact(result == "A-17 went out by courier", f"the fork's result: {result}")
        screen.fact(
            shelf()["charged"] == ["A-17 42.00"] and shelf()["parcels"] == ["A-17 by courier", "A-17 by post"],
            "it made only what comes after the answer: a second parcel, no second charge",
        )
        screen.fact(
            run.audit().head == before and run.result() == "A-17 went out by post", f"{RUN} is as it was, to the bit"
        )


def roll_back(screen: Screen, store: str) -> None:
    screen.chapter("Rolled back, with what it did undone")
    with holdfast.open(store) as hf:
        run = hf.get(RUN)
        screen.table(
            ["effect", "on", "a rollback will"],
            [
                [planned.effect.tool, planned.effect.target or "", WILL[planned.action]]
                for planned in run.plan_rollback(to=0).steps
            ],
        )
        before = shelf()
        report = run.rollback(to=0, then="cancelled")
        after = shelf()
        show_world(screen, ("before", before), ("after", after))
        screen.fact(
            [effect.tool for effect in report.undone] == ["ship", "reserve", "reserve", "charge"],
            "undone, newest first: the parcel, both reservations, the charge",
        )
        screen.fact(
            after["charged"] == [] and after["in stock"] == ["lamp 3", "desk 1"] and after["put aside"] == [],
            "the money is back, and so are lamp and desk",
        )
        screen.fact(after["parcels"] == ["A-17 by courier"], "the fork's parcel stays: it is not this run's")
        screen.fact(
            [effect.tool for effect in report.irreversible] == ["thank"] and after["letters"] == before["letters"],
            "the letter cannot be taken back, and the report says so",
        )
        screen.timeline(run)


def refuse(screen: Screen, store: str) -> None:
    screen.chapter("An order that fails takes itself back")
    with holdfast.open(store) as hf:
        before = shelf()
        run = hf.start(order.fulfil, "A-18", 990, ["lamp"], id="A-18")
        between = shelf()
        run.answer(order.Approval(ship=False, words="no such street"), by="demo")
        try:
            run.result()
        except order.Refused as refused:
            screen.fact(str(refused) == "no such street", f"a person refuses it: {refused}")
        else:
            screen.fact(False, "a person refuses it")
        show_world(screen, ("before", before), ("while it asked", between), ("refused", shelf()))
        screen.fact(run.status == "failed" and shelf() == before, "it failed, and the shop is as it was before")


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
    screen.title("Holdfast", "An order that survives being killed. Each line with a sign was just checked.")
    logging.getLogger("holdfast").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as scratch:
        os.environ["SHOP"] = scratch
        shop.SHOP = Path(scratch)
        shop.tell = lambda what, text: screen.quiet(f"{'demo':8} {what}   {text}")
        store = f"sqlite:///{scratch}/orders.db"
        with shop.opened("stock") as stock:
            stock.update(lamp=3, desk=1)
        first = kill(screen, store)
        workers = [Process(screen, f"worker {n}", "work") for n in (1, 2)]
        try:
            take_over(screen, store, first, workers)
            ask(screen, store, workers)
        finally:
            for worker in workers:
                worker.process.kill()
        fork(screen, store)
        roll_back(screen, store)
        refuse(screen, store)
        audit(screen, store)
    screen.console.print()
    screen.title(
        f"All true, in {time.monotonic() - started:.1f} s",
        "examples/order.py                  the order that you just saw: copy it\n"
        "docs/tutorial/first-workflow.md    the same in ten minutes, by hand\n"
        "docs/index.md                      all documents",
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
