"""A fleet of workers on one PostgreSQL: how much it does, what holds it up, what it costs when it is idle, and how
soon a run goes on whose worker was killed.

The workers are processes, started by `holdfast worker` as anybody would. Server, workers and this program share one
machine, so the figures say what the parts cost beside each other, and which of them is the first to be at its end.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

import holdfast
from bench import fleet_worker, retention
from bench.database import Server, ask, postgres
from bench.harness import Measured, Say
from holdfast.stores import migrate

ROOT = Path(__file__).parents[1]
WORKERS = (1, 2, 4, 8)
RUNS = {"short": 800, "long": 200}
STEPS = {"short": 1, "long": fleet_worker.STEPS}
ROUNDS = 3
LEASE = 5.0
KILLS = 10
PATIENCE = 120.0
QUIET = 30.0  # seconds: longer than an idle worker waits, so each has looked once more, and found nothing
SEED = 5
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
TRANSACTIONS = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): ")

GOALS: dict[str, float] = {
    "fleet_failover_after_lease_max_s": 2.0,
    "fleet_idle_100_queries_per_s": 20.0,
}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    figures: dict[str, float] = {}
    with postgres() as server:
        for part in (throughput, failover):
            figures |= part(server, folder, say, quick)
    with postgres(max_connections="600", log_statement="all", log_min_messages="log") as server:
        figures |= idle(server, folder, say, quick)
    return figures | retention.measure(folder, say, quick=quick)


# --- worker processes


class Fleet:
    """Some worker processes, which end with it."""

    def __init__(self, folder: Path, commands: Sequence[Sequence[str]]) -> None:
        self._log = folder / f"workers-{time.monotonic_ns()}"
        self.processes: list[subprocess.Popen[bytes]] = []
        with open(self._log, "ab") as log:
            for command in commands:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                )

    def wait_until_at_work(self) -> None:
        """Until each of them has said so."""
        wait_for(lambda: self._log.read_text().count("worker.working") >= len(self.processes), self._log.read_text)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(condition: Callable[[], bool], told: Callable[[], str] = str, every: float = 0.01) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(f"nothing happened for {PATIENCE:g} s; {told()[-2_000:]}")
        time.sleep(every)


@contextmanager
def workers(folder: Path, url: str, count: int, *more: str) -> Iterator[Fleet]:
    """Workers as a user starts them."""
    command = ["-m", "holdfast", "worker", "bench/fleet_worker.py", "--store", url, "--json", *more]
    fleet = Fleet(folder, [command] * count)
    try:
        fleet.wait_until_at_work()
        yield fleet
    finally:
        fleet.stop()


@contextmanager
def crews(folder: Path, url: str, lease: float, *counts: int) -> Iterator[Fleet]:
    """So many workers in each of some processes."""
    commands = [["-m", "bench.fleet_worker", "crew", url, str(lease), str(count)] for count in counts]
    fleet = Fleet(folder, commands)
    try:
        yield fleet
    finally:
        fleet.stop()


def enqueue(url: str, function: Any, calls: Sequence[tuple[Any, ...]], queue: str = "default") -> None:
    """Enqueue many at once, which share commits."""

    async def all_of_them() -> None:
        async with holdfast.open(url) as hf:
            await asyncio.gather(*(hf.enqueue(function, *args, queue=queue) for args in calls))

    asyncio.run(all_of_them())


# --- what it takes


class Spent(NamedTuple):
    """Seconds since the machine, or a process, was started; and what the server counts."""

    at: float
    workers: float
    server: float
    idle: float
    waiting: float  # for the disk, with nothing else to do

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


TICK = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


def spent(fleet: Fleet, server: Server) -> Spent:
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    backends = [pid for pid, parent in parents().items() if parent == postmaster]
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return Spent(
        time.monotonic(),
        sum(processor_time(process.pid) for process in fleet.processes),
        sum(processor_time(pid) for pid in (postmaster, *backends)),
        int(fields[4]) / TICK,
        int(fields[5]) / TICK,
    )


def parents() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := stat_of(int(folder.name))):
            found[int(folder.name)] = int(fields[1])
    return found


def stat_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []  # it is gone


def processor_time(pid: int) -> float:
    fields = stat_of(pid)
    return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0


class Told(NamedTuple):
    """What the server counts. Sessions tell what they did when they end."""

    syncs: float  # of its log
    syncing: float  # seconds in which it did so
    transactions: float
    runs: float = 0.0  # in which that was needed
    seconds: float = 0.0


def told(server: Server) -> Told:
    asked = "SELECT coalesce(sum(fsyncs), 0), coalesce(sum(fsync_time), 0) / 1000 FROM pg_stat_io WHERE object = 'wal'"
    [(syncs, seconds)] = ask(server.url, asked)
    return Told(float(syncs), float(seconds), count(server, TRANSACTIONS))


# --- throughput


class Round(NamedTuple):
    """What some workers did with one kind of runs."""

    seconds: float
    runs: int
    steps: int
    spent: Spent


def throughput(server: Server, folder: Path, say: Say, quick: bool) -> dict[str, float]:
    url = f"{server.url}?schema=throughput"
    migrate(url)
    rounds: dict[tuple[int, str], list[Round]] = {(count, kind): [] for count in WORKERS for kind in RUNS}
    counted: dict[int, list[Told]] = {count: [] for count in WORKERS}
    for n in range(1 if quick else ROUNDS):
        for count in WORKERS:
            say(f"{count} worker processes (round {n + 1})")
            made, of_server = one_round(server, folder, url, count, 4 if quick else 1)
            counted[count].append(of_server)
            for kind, each in made.items():
                rounds[count, kind].append(each)
    return rates(rounds) | saturation(rounds, counted)


def one_round(server: Server, folder: Path, url: str, count: int, part: int) -> tuple[dict[str, Round], Told]:
    """Both kinds of runs, one after the other; and what the server counted meanwhile."""
    with holdfast.open(url) as hf:
        for kind in RUNS:
            hf.queue(kind).pause()
    for kind, runs in RUNS.items():
        enqueue(url, getattr(fleet_worker, kind), [()] * (runs // part), kind)
    before, made = told(server), dict[str, Round]()
    with workers(folder, url, count, "--queue", "short", "--queue", "long") as fleet, holdfast.open(url) as hf:
        for kind, runs in RUNS.items():
            started = spent(fleet, server)
            hf.queue(kind).resume()
            wait_until_done(server, "throughput", kind)
            ended = spent(fleet, server).since(started)
            made[kind] = Round(ended.at, runs // part, runs // part * STEPS[kind], ended)
    counted = [now - then for now, then in zip(told(server), before, strict=True)][:3]
    runs, seconds = (sum(each) for each in zip(*((one.runs, one.seconds) for one in made.values()), strict=True))
    return made, Told(*counted, runs, seconds)


def wait_until_done(server: Server, schema: str, queue: str) -> None:
    left = f"SELECT EXISTS (SELECT 1 FROM {schema}.run WHERE status IN ('ready', 'running') AND queue = %s)"
    with psycopg.connect(server.url, autocommit=True) as conn:
        wait_for(lambda: not conn.execute(left, (queue,)).fetchone()[0])  # type: ignore[index]


def rates(rounds: dict[tuple[int, str], list[Round]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for (count, kind), each in rounds.items():
        if kind == "short":
            figures[f"fleet_{count}_runs_per_s"] = Measured.of([one.runs / one.seconds for one in each])
        else:
            figures[f"fleet_{count}_steps_per_s"] = Measured.of([one.steps / one.seconds for one in each])
    return figures


def saturation(rounds: dict[tuple[int, str], list[Round]], counted: dict[int, list[Told]]) -> dict[str, float]:
    """What each run and step costs, of the processor and of the disk; and how busy these are."""
    figures: dict[str, float] = {"fleet_cores": CORES, "fleet_runs_at_once": 10}
    for count in WORKERS:
        both = [one for kind in RUNS for one in rounds[count, kind]]
        for who in ("workers", "server"):
            shares = [getattr(one.spent, who) / one.seconds / CORES * 100 for one in both]
            figures[f"fleet_{count}_cpu_{who}_percent"] = Measured.of(shares)
        figures[f"fleet_{count}_idle_percent"] = Measured.of(
            [(one.spent.idle + one.spent.waiting) / one.seconds / CORES * 100 for one in both]
        )
        of_server = counted[count]
        figures |= {
            f"fleet_{count}_sync_percent": Measured.of([one.syncing / one.seconds * 100 for one in of_server]),
            f"fleet_{count}_sync_us": Measured.of([one.syncing / one.syncs * 1e6 for one in of_server]),
            f"fleet_{count}_syncs_per_run": Measured.of([one.syncs / one.runs for one in of_server]),
            f"fleet_{count}_transactions_per_run": Measured.of([one.transactions / one.runs for one in of_server]),
        }
        for kind in RUNS:
            for who in ("workers", "server"):
                name = f"fleet_{count}_{who}_us_per_{kind}_run"
                figures[name] = Measured.of([getattr(one.spent, who) / one.runs * 1e6 for one in rounds[count, kind]])
    return figures


# --- failover


def failover(server: Server, folder: Path, say: Say, quick: bool) -> dict[str, float]:
    """From the kill of a worker until the step that it was in has begun elsewhere."""
    kills = 3 if quick else KILLS
    say(f"failover: {kills} workers are killed")
    url, place = f"{server.url}?schema=failover", folder / "failover"
    place.mkdir()
    migrate(url)
    enqueue(url, fleet_worker.lingering, [(f"run-{n}", str(place)) for n in range(kills)])
    dice, killed = random.Random(SEED), dict[str, float]()
    try:
        with crews(folder, url, LEASE, *[1] * kills) as victims:
            wait_for(lambda: len(begun(place)) == kills)
            holders = {pid: name for name, pid, _ in begun(place)}
            with crews(folder, url, LEASE, 8, 8):
                time.sleep(LEASE)  # they are there, and know of the others
                for victim in victims.processes:
                    time.sleep(dice.uniform(0.1, 1.5))
                    victim.send_signal(signal.SIGKILL)
                    killed[holders[victim.pid]] = time.monotonic()
                wait_for(lambda: len(begun(place)) == 2 * kills)
                (place / "end").touch()
                wait_until_done(server, "failover", "default")
    finally:
        (place / "end").touch()
    again = {name: at for name, pid, at in begun(place) if pid not in holders}
    took = [again[name] - at for name, at in killed.items()]
    return {
        "fleet_failover_kills": kills,
        "fleet_failover_lease_s": LEASE,
        "fleet_failover_s": Measured.of(took),
        "fleet_failover_max_s": max(took),
        "fleet_failover_after_lease_max_s": max(took) - LEASE,
    }


def begun(place: Path) -> list[tuple[str, int, float]]:
    """Who has begun which run, and when."""
    if not (place / "begun").exists():
        return []
    lines = [line.split() for line in (place / "begun").read_text().splitlines()]
    return [(name, int(pid), float(at)) for name, pid, at in lines]


# --- idle


def idle(server: Server, folder: Path, say: Say, quick: bool) -> dict[str, float]:
    """What the server is asked while nothing is to be done, by workers each of which has worked before."""
    window, figures = (10.0 if quick else 30.0), dict[str, float]()
    for name, size, start in (
        ("processes_20", 20, lambda url: workers(folder, url, 20, "--concurrency", "1")),
        ("100", 100, lambda url: crews(folder, url, 30.0, 25, 25, 25, 25)),
    ):
        say(f"{size} workers that are idle")
        url = f"{server.url}?schema=idle_{name}"
        migrate(url)
        enqueue(url, fleet_worker.nap, [(1.0,)] * (3 * size))
        with start(url):
            wait_until_done(server, f"idle_{name}", "default")
            figures[f"fleet_idle_{name}_workers"] = count(server, f"SELECT count(*) FROM idle_{name}.worker")
            time.sleep(5.0 if quick else QUIET)
            figures[f"fleet_idle_{name}_connections"] = count(server, CONNECTIONS)
            before, started = asked(server), time.monotonic()
            time.sleep(window)
            figures[f"fleet_idle_{name}_queries_per_s"] = (asked(server) - before) / (time.monotonic() - started)
    return figures


def asked(server: Server) -> int:
    """How many statements the server was given, by its log."""
    return len(STATEMENT.findall((server.folder / "log").read_text(errors="replace")))


def count(server: Server, statement: str) -> int:
    [(found,)] = ask(server.url, statement)
    return int(found)
