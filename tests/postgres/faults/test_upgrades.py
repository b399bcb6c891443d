"""The release before works beside this one on the new schema, and any number of processes may migrate at once."""

import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import labour
import psycopg
import pytest
from children import Child
from pgserver import Schemas

import holdfast
from holdfast.stores.postgres.schema import migrate, migrations

RELEASES = Path(__file__).parents[1] / "releases"
MIGRATE = (
    "import sys; from holdfast.stores import migrate; print('ready', flush=True); input(); print(migrate(sys.argv[1]))"
)
ENQUEUE = (
    "import sys, holdfast; sys.path.insert(0, sys.argv[2]); import labour\n"
    "with holdfast.open(sys.argv[1]) as hf:\n"
    "    hf.enqueue(labour.quick, sys.argv[3], 1, id=sys.argv[4], tags={'made': 'before'})\n"
)


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which Python finds the release before this one."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(RELEASES / "schema-1.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    env = {"PYTHONPATH": str(folder / "src")}
    where = told("import holdfast; print(holdfast.__file__)", env=env)
    assert where.startswith(str(folder)), where
    return env


def told(code: str, *arguments: str, env: dict[str, str], given: str = "") -> str:
    """What a program says."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env, input=given).stdout.strip()


@pytest.fixture
def empty(postgres_schemas: Schemas) -> Iterator[str]:
    """The URL of a database of this test alone, with nothing in it."""
    name = f"{postgres_schemas.name}_upgrades"
    postgres_schemas.execute(f"CREATE DATABASE {name}")
    yield postgres_schemas.elsewhere(database=name)
    postgres_schemas.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow(covered_by="tests/postgres/test_migrations.py")
@pytest.mark.parametrize("kills", [8, pytest.param(150, marks=pytest.mark.torture)])
def test_workers_of_both_releases_hand_runs_to_each_other(
    empty: str,
    before: dict[str, str],
    fleets: Callable[[str], Any],
    tmp_path: Path,
    kills: int,
    verdict: Callable[..., None],
) -> None:
    """An old one begins on the old schema; it is migrated under its hands; then both work, and are killed."""
    other_world = str(tmp_path / "tagged")

    def enqueue(id: str) -> None:
        told(ENQUEUE, empty, str(Path(labour.__file__).parent), other_world, id, env=before)

    assert told(MIGRATE, empty, env=before, given="go") == "ready\n(1,)"
    with psycopg.connect(empty, autocommit=True) as conn:
        conn.execute("CREATE TABLE ledger (what text NOT NULL)")
    first = Child(labour.__file__, empty, '{"lease": 1.0}', env=before)
    try:
        assert first.line() == "ready"
        enqueue("tagged 0")
        assert migrate(empty) == tuple(number for number, _ in migrations() if number > 1)
        enqueue("tagged 1")
        fleet, pids = fleets(empty), dict[str, set[int]](old={first.pid}, new=set())

        def hire() -> Child:
            release = min(pids, key=lambda name: len(pids[name]))
            worker: Child = fleet.worker(env=before if release == "old" else None)
            pids[release].add(worker.pid)
            return worker

        crew = fleet.crew(hire)
        fleet.trial.workflows = (labour.order, labour.order_in_branches)
        fleet.trial.go(crew.killing(kills), timeout=900 if kills > 8 else 90)
        assert [info.id for info in fleet.hf.runs(tags={"made": "before"})] == ["tagged 1", "tagged 0"]
        for id in ("tagged 0", "tagged 1"):
            assert fleet.hf.get(id).result(timeout=20) == 1
            fleet.hf.get(id).delete()
        assert len(fleet.hf.runs(tags={"made": "before"})) == 0
        crew.dismiss()
        first.process.terminate()
        assert first.process.wait(30) == 0
    finally:
        first.clear_away()
    did = Counter(name for pid, _, _ in labour.lines(fleet.trial.world) for name in pids if pid in pids[name])
    assert min(did["old"], did["new"]) > 0, did
    verdict(fleet, "two releases side by side", kills=crew.killed, acts_old=did["old"], acts_new=did["new"])


# --- migrating at once


@pytest.mark.slow(covered_by="tests/postgres/test_migrations.py")
@pytest.mark.parametrize("begin", [0, 1], ids=["from nothing", "from the schema before"])
def test_twenty_processes_may_migrate_at_once(
    empty: str, before: dict[str, str], begin: int, tally: Callable[..., None]
) -> None:
    if begin:
        assert told(MIGRATE, empty, env=before, given="go") == f"ready\n({begin},)"
    children = [Child("-c", MIGRATE, empty) for _ in range(20)]
    try:
        for child in children:
            assert child.line() == "ready"
        for child in children:
            child.say("go")
        made = Counter(child.line() for child in children)
        assert [child.process.wait(30) for child in children] == [0] * 20
    finally:
        for child in children:
            child.clear_away()
    everything = tuple(number for number, _ in migrations() if number > begin)
    assert made == {str(everything): 1, "()": 19}
    holdfast.open(empty).close()
    tally("PostgreSQL, processes migrating at once", processes=20, violations=0)
