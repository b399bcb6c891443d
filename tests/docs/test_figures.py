"""Numbers in the documents are measured (bench/results.json), or stand in the code; none is only said."""

import inspect
import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.codec import Codec, cipher
from holdfast.codec.scrub import FOUND_ANYWHERE
from holdfast.engine.access.engine import MAX_BYTES
from holdfast.engine.access.heartbeat import DEFAULT_LEASE
from holdfast.engine.argument_checks import MAX_PRIORITY
from holdfast.engine.worker.schedules import MAX_NAME
from holdfast.engine.workflow.replay_gate import MOST
from holdfast.flow.actions.secrets import SHORTEST
from holdfast.importers.reading import MAX_DEPTH
from holdfast.kernel.rules import MAX_ID
from holdfast.stores.postgres import connections, store, stuck_calls
from holdfast.stores.sqlite import damage
from holdfast.stores.sqlite.connect import BUSY_SECONDS
from holdfast.stores.sqlite.file import GLANCE, PAGE_SIZE
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.ui import hooks
from holdfast.ui.site import Limits

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
RESULTS = json.loads((ROOT / "bench" / "results.json").read_text())
PERFORMANCE = ROOT / "docs" / "explanation" / "performance.md"

QUOTED = re.compile(r"(?P<shown>[\d.,]*)<!-- bench: (?P<name>\w+) -->")
TABLE = re.compile(r"<!-- table: \w+ -->.*?<!-- end -->", re.DOTALL)  # made as a whole: test_generated.py looks at them
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
UNITS = "×|times|%|µs|ms|s|seconds|minutes|[KMG]i?B|bytes|bits|characters|levels|pages|runs|entries"
NUMBER = re.compile(rf"(?<![\w.,])\d[\d.,]* (?:{UNITS})(?!\w)|(?<![\w.,])\d[\d.,]*(?:×|%)")


def default(function: object, name: str) -> int:
    return int(inspect.signature(function).parameters[name].default)  # type: ignore[arg-type]


def length_of_a_kept_error() -> int:
    def failing() -> None:
        raise ValueError("x" * 100_000)

    with holdfast.open("memory://") as hf, hf.run("a").claim() as run:
        with pytest.raises(ValueError, match="x"):
            run.once("a", failing, target="a")
        [seq] = [entry.seq for entry in run.history() if entry.kind == "raised"]
        return len(run.entry(seq).contents["error"])


def in_the_code() -> set[str]:
    """What a document may say, as the code has it now."""
    with closing(sqlite3.connect(":memory:")) as db:
        [pages_between_checkpoints] = db.execute("PRAGMA wal_autocheckpoint").fetchone()
    return {
        f"{MOST:g} seconds",
        *(f"{minutes} minutes" for minutes in re.findall(r"## (\d+) min \|", (ROOT / "Makefile").read_text())),
        f"{MAX_ID} characters",
        f"{MAX_NAME} characters",  # of a schedule's id
        f"{MAX_PRIORITY.bit_length()} bits",
        f"{SHORTEST} characters",
        f"{FOUND_ANYWHERE} characters",  # of a secret
        f"{length_of_a_kept_error():,} characters",
        f"{MAX_BYTES >> 20} MiB",
        f"{default(Codec.__init__, 'max_depth')} levels",
        f"{MAX_DEPTH} levels",  # of what is imported
        f"{BUSY_SECONDS:.0f} s",
        f"{GLANCE:.0f} s",
        f"{damage.MOST_BYTES >> 20} MiB",
        f"{damage.MOST_ENTRIES:,} entries",
        f"{DEFAULT_LEASE:.0f} s",
        f"{default(holdfast.open, 'effect_wait'):.0f} s",
        f"{connections.PATIENCE:.0f} s",
        f"{store.STILL:.0f} s",
        *(f"{value.removesuffix('s')} s" for value in (*connections._LIMITS.values(), connections._TRANSACTION[1])),
        f"{stuck_calls.LIMIT:.0f} s",
        f"{store.LOOK_WHEN_TOLD:.0f} s",
        f"{default(holdfast.Holdfast.runs, 'limit')} runs",
        f"{default(holdfast.Run.history, 'limit')} entries",
        f"{PAGE_SIZE >> 10} KB",
        f"{SqliteStore.compress_over} bytes",
        f"{Limits().body >> 20} MiB",
        f"{Limits().seconds:.0f} s",
        f"{hooks.TIMEOUT:.0f} seconds",
        f"{pages_between_checkpoints:,} pages",
        f"{cipher._NONCE_BYTES} bytes",
        "32 bytes",  # of a hash of the chain, and of the longest AES key
        "2,700 bytes",  # of an entry of an index, which PostgreSQL limits
        "64 bits",  # of an integer of JSON, which msgspec limits
    }


MADE = {ROOT / "docs" / "reference" / "flows.md"}  # of constants of the code, by docs/flow_keys.py

# What was measured, not what came out of it; bench/ has these numbers.
SETTINGS = {
    "docs/explanation/decisions.md": {"1 KB", "4 KB", "15 KB"},
    "docs/explanation/performance.md": {"1 KB", "4 KB"},
    "README.md": {"1 KB"},
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_measured_figures_are_those_of_the_results(document: Path) -> None:
    text, figures = document.read_text(), RESULTS["figures"]
    quoted = [match.groupdict() for match in QUOTED.finditer(text)]
    assert len(quoted) == text.count("<!-- bench"), "written as 1.05<!-- bench: NAME -->"
    for each in quoted:
        decimals = len(each["shown"].partition(".")[2])
        measured = f"{figures[each['name']]:,.{decimals}f}"
        assert each["shown"] == measured, f"{each['name']}: run `python docs/generate.py`"


def test_a_goal_that_is_missed_is_told_with_its_reason() -> None:
    goals, figures = RESULTS["goals"], RESULTS["figures"]
    missed = [
        name
        for name, goal in goals.items()
        if figures[name] > goal.get("at_most", math.inf) or figures[name] < goal.get("at_least", -math.inf)
    ]
    reasons = PERFORMANCE.read_text().partition("### What is close to its goal, or misses it")[2].partition("\n## ")[0]
    assert [name for name in missed if f"`{name}`" not in reasons] == []


def test_every_figure_that_was_promised_is_measured() -> None:
    promised = """
        step_full_vs_raw step_normal_vs_raw async_step_full_vs_raw async_step_normal_vs_raw concurrent_full_vs_raw_rate
        pg_step_vs_raw pg_concurrent_vs_raw_rate langgraph_sqlite_step_over_ours dbos_sqlite_step_over_ours
        langgraph_pg_step_over_ours dbos_pg_step_over_ours absurd_pg_step_over_ours growth_bytes_over_appended
        growth_last_over_first langgraph_growth_bytes_over_ours langgraph_growth_time_over_ours replay_us_per_step
        fork_10000_over_10 list_1m_over_1k import_over_msgspec loop_lag_p99_ms saver_sqlite_of_ceiling
        saver_sqlite_speedup saver_growth_bytes saver_growth_speedup
    """
    assert [name for name in promised.split() if not isinstance(RESULTS["figures"].get(name), int | float)] == []


def test_pictures_have_nothing_from_outside() -> None:
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        found = re.findall(r"\w+://[^\s\"'<]+", picture.read_text())
        assert set(found) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, picture.name


@pytest.mark.parametrize(
    "document", [one for one in DOCUMENTS if one not in MADE], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_other_number_with_a_unit_is_in_the_code(document: Path) -> None:
    prose = QUOTED.sub("", CODE.sub("", TABLE.sub("", document.read_text())))
    allowed = in_the_code() | SETTINGS.get(str(document.relative_to(ROOT)), set())
    assert [number for number in NUMBER.findall(prose) if number not in allowed] == []


@pytest.mark.parametrize(
    "said", ["It takes 8.0 µs.", "| 1,000 runs |", "1.23 × the data", "half of it, 50% or so", "(64 KB)"]
)
def test_a_number_that_is_only_said_is_found(said: str) -> None:
    assert NUMBER.search(said)
