"""What was measured for the decisions in docs/explanation/decisions.md: each rival is tried here again.

Rivals take turns inside of one round, and a figure is the median of the rounds' ratios, so that a busy machine slows
all of them. A ratio is what Holdfast does over what it does not do: below 1 speaks for the decision.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from pydoc_data.topics import topics  # English text that every Python has
from typing import Any

import holdfast
from bench.harness import Say
from holdfast.codec.frame import squeeze
from holdfast.stores.sqlite.file import PAGE_SIZE
from holdfast.stores.sqlite.statements import migrations

RUNS = 100
ENTRIES = 150  # of each run
PAYLOADS = (100, 2_000)  # bytes, from and to
TEXTS = {1_024: "1k", 15_360: "15k"}  # bytes
LISTED = 1_000

GOALS: dict[str, float] = {
    "entries_appended_over_clustered_bytes": 1.0,
    "entries_appended_over_clustered_time": 1.0,
    "entries_large_over_small_pages_bytes": 1.0,
    "squeeze_bytes_over_text_1k": 0.9,
}

SMALL_PAGE = 4_096
COLUMNS = "run, seq, kind, at, state, hash, payload"
CLUSTERED = f"CREATE TABLE entry ({COLUMNS}, PRIMARY KEY (run, seq)) WITHOUT ROWID"


def measure(folder: Path, say: Say) -> dict[str, float]:
    say("how entries are laid out")
    figures = entries(folder)
    say("compression")
    figures |= squeezing()
    say(f"a list of {LISTED} runs, files")
    return figures | listing(f"files:///{folder / 'listed'}")


# --- pages and the order of entries -----------------------------------------------------------------------------------


def entries(folder: Path, rounds: int = 5) -> dict[str, float]:
    """Entries in the order of their commits with an index, against a table that is clustered by run; two page sizes.

    A commit has one entry of each run, as when many runs go on at once.
    """
    found = [one_round(folder, seed) for seed in range(rounds)]

    def ratio(figure: str, ours: tuple[str, int], theirs: tuple[str, int]) -> float:
        return statistics.median(each[ours][figure] / each[theirs][figure] for each in found)

    ours, clustered = ("appended", PAGE_SIZE), ("clustered", PAGE_SIZE)
    return {
        "entries_runs": RUNS,
        "entries_of_each_run": ENTRIES,
        "entries_bytes_over_data": statistics.median(each[ours]["bytes"] / each[ours]["data"] for each in found),
        "entries_large_over_small_pages_bytes": ratio("bytes", ours, ("appended", SMALL_PAGE)),
        "entries_appended_over_clustered_bytes": ratio("bytes", ours, clustered),
        "entries_appended_over_clustered_time": ratio("write", ours, clustered),
        "entries_appended_over_clustered_read_time": ratio("read", ours, clustered),
    }


def one_round(folder: Path, seed: int) -> dict[tuple[str, int], dict[str, float]]:
    rivals = [(layout, page) for layout in ("appended", "clustered") for page in (SMALL_PAGE, PAGE_SIZE)]
    found = {rival: dict.fromkeys(("write", "read", "bytes", "data"), 0.0) for rival in rivals}
    source = random.Random(seed)
    with ExitStack() as stack:
        files = {(layout, page): folder / f"{layout}-{page}-{seed}" for layout, page in rivals}
        open_files = {rival: stack.enter_context(closing(database(files[rival], *rival))) for rival in rivals}
        for rows in commits(source):
            for rival in source.sample(rivals, len(rivals)):
                started = time.perf_counter()
                insert(open_files[rival], rows)
                found[rival]["write"] += time.perf_counter() - started
                found[rival]["data"] += sum(len(digest) + len(payload) for *_, digest, payload in rows)
        reads: dict[tuple[str, int], list[float]] = {rival: [] for rival in rivals}
        for run in [*range(RUNS)] * 3:
            for rival in source.sample(rivals, len(rivals)):
                started = time.perf_counter()
                read = open_files[rival].execute("SELECT payload FROM entry WHERE run = ? ORDER BY seq", [run])
                assert len(read.fetchall()) == ENTRIES
                reads[rival].append(time.perf_counter() - started)
    for rival, times in reads.items():
        found[rival]["read"] = statistics.median(times)
    for rival, file in files.items():  # closed by now, so that all of it is in the file
        found[rival]["bytes"] = file.stat().st_size
        file.unlink()
    return found


def database(file: Path, layout: str, page_size: int) -> sqlite3.Connection:
    """Opened as the store opens its own."""
    db = sqlite3.connect(file, isolation_level=None)
    for setting in (f"page_size = {page_size}", "journal_mode = WAL", "synchronous = FULL", "secure_delete = 1"):
        db.execute(f"PRAGMA {setting}")
    db.executescript(migrations()[0][1] if layout == "appended" else CLUSTERED)
    return db


def commits(source: random.Random) -> Iterator[list[tuple[Any, ...]]]:
    for seq in range(ENTRIES):
        payloads = [source.randbytes(source.randint(*PAYLOADS)) for _ in range(RUNS)]
        at = 1_700_000_000_000_000 + seq
        yield [(run, seq, "saved", at, 0, source.randbytes(32), payload) for run, payload in enumerate(payloads)]


def insert(db: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.executemany(f"INSERT INTO entry ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.execute("COMMIT")


# --- compression ------------------------------------------------------------------------------------------------------


def squeezing(times: int = 300) -> dict[str, float]:
    """How long a text of prose is when it is compressed."""
    prose = "\n".join(topics[name] for name in sorted(topics)).encode()
    source = random.Random(7)
    figures: dict[str, float] = {}
    for length, name in TEXTS.items():
        size = 0
        for _ in range(times):
            begin = source.randrange(len(prose) - length)
            size += len(squeeze(prose[begin : begin + length], 0))
        figures[f"squeeze_bytes_over_text_{name}"] = size / (times * length)
    return figures


# --- the files store --------------------------------------------------------------------------------------------------


def listing(url: str, rounds: int = 9) -> dict[str, float]:
    """A list by status, for which every run's record is read."""
    with holdfast.open(url) as hf:
        for n in range(LISTED):
            hf.run(f"run-{n}")
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            hf.runs(status="waiting")
            times.append(time.perf_counter() - started)
    return {"list_runs": LISTED, "list_ms_files": statistics.median(times) * 1e3}
