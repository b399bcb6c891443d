"""Bits of a SQLite file are flipped at random, in every region: each answer is the right one, or a typed error.

Where that cannot be promised, it is named here (`BY_ONE_INDEX`, `BY_HEADERS`), and as in the guarantees: a list that is
read by one index is shorter if that index is damaged, and a history shows headers that are not verified. Then
`holdfast doctor` finds it, and so does whoever opens a store that was not closed.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sizes
import stocked
from stocked import answers, attempts, outcome, questions, stock, uids

import holdfast
from holdfast.errors import HoldfastError, RunDamaged, RunNotFound, StoreDamaged
from holdfast.stores.sqlite import file
from holdfast.stores.sqlite.connect import connect_to_read
from holdfast.stores.sqlite.damage import examine
from holdfast.stores.sqlite.statements import Q

PAGE = 512
HEADER = 100
TRIALS = sizes.size(2, 15, 60)  # in each region
KINDS = {2: "inner page of an index", 5: "inner page of a table", 10: "page of an index", 13: "page of a table"}
REGIONS = ["header", "free or overflow page", *KINDS.values()]
BY_ONE_INDEX = (
    "runs",
    "all runs",
    "forks",
    "due",
    "counts",
    "queues",
    "backlog",
    "orphans",
    "recover",
    "next wake",
    "workers",
)
BY_HEADERS = ("history",)
UNVERIFIED = ("read",)  # what the store gives to the engine, which verifies it


class Sound(NamedTuple):
    """A store without damage, the uids of its runs, and its answers."""

    whole: bytes
    known: dict[str, str]
    truth: dict[str, Any]
    places: dict[str, list[int]]  # of bytes, by region


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    folder = tmp_path_factory.mktemp("sound")
    url = f"sqlite:///{folder / 'runs.db'}?durability=normal"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "PAGE_SIZE", PAGE)
        with holdfast.open(url) as hf:  # what is deleted leaves free pages
            hf.run("gone").save({"text": [random.Random(1).randbytes(900).hex() for _ in range(9)]})
            hf.get("gone").delete()
        stock(lambda: holdfast.open(url))
        with holdfast.open(url) as hf:  # so many that indexes have inner pages
            for n in range(60):
                hf.enqueue(stocked.deliver, f"bulk {n}", id=f"bulk-{n}", queue="bulk", tags={"team": "green"})
    with closing(sqlite3.connect(folder / "runs.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = (folder / "runs.db").read_bytes()
    shutil.copy(folder / "runs.db", folder / "copy.db")
    with holdfast.open(f"sqlite:///{folder / 'copy.db'}") as hf:
        known = uids(hf)
        truth = answers(hf, known)
    return Sound(whole, known, truth, regions(whole))


def regions(whole: bytes) -> dict[str, list[int]]:
    """Which bytes of the file lie in which region."""
    found: dict[str, list[int]] = {name: [] for name in REGIONS}
    found["header"] += range(HEADER)
    for start in range(0, len(whole), PAGE):
        begin = HEADER if start == 0 else start
        kind = KINDS.get(whole[begin], "free or overflow page")
        found[kind] += range(begin, start + PAGE)
    return found


def damaged(sound: Sound, folder: Path, at: int, bit: int) -> Path:
    """A file of its own with one flipped bit."""
    path = folder / f"{at}-{bit}.db"
    changed = bytearray(sound.whole)
    changed[at] ^= 1 << bit
    path.write_bytes(bytes(changed))
    return path


def flips(sound: Sound, region: str, seed: int) -> Iterator[tuple[int, int]]:
    chosen = random.Random(f"{seed} {region}")
    places = sound.places[region]
    for _ in range(TRIALS):
        yield chosen.choice(places), chosen.randrange(8)


def wrong_answers(sound: Sound, path: Path) -> dict[str, Any]:
    """Answers that are neither right nor a typed error that is true."""
    try:
        hf = holdfast.open(f"sqlite:///{path}?durability=normal")
    except HoldfastError:
        return {}
    wrong: dict[str, Any] = {}
    for name, question in questions(hf, sound.known):
        kind, value = outcome(question)
        if kind == "bare" or isinstance(value, RunNotFound) or (kind == "value" and value != sound.truth[name]):
            wrong[name] = value
    stocked.EXECUTED.clear()
    for name, call in [*attempts(hf, sound.known), ("close", hf.close)]:
        kind, value = outcome(call)
        if kind == "bare":
            wrong[name] = value
    if again := stocked.executed_again():
        wrong["executed again"] = again
    return wrong


def is_allowed(name: str) -> bool:
    """Whether an answer is one of those that are read by one index, or by headers."""
    return any(name == one or name.startswith(f"{one} ") for one in (*BY_ONE_INDEX, *BY_HEADERS, *UNVERIFIED))


def is_found(path: Path) -> bool:
    """Whether `holdfast doctor` finds damage: in the file, or in a journal."""
    try:
        with closing(connect_to_read(str(path), sqlite3.Connection)) as db:
            if list(examine(db, Q, str(path))):
                return True
        with holdfast.open(f"sqlite:///{path}?durability=normal") as hf:
            for info in hf.runs(limit=99):
                hf.audit(info.id)
    except (RunDamaged, StoreDamaged, sqlite3.DatabaseError):
        return True
    return False


@pytest.mark.parametrize("region", REGIONS)
def test_every_answer_is_right_or_a_typed_error(
    region: str, memdir: Path, sound: Sound, seed: int, tally: Callable[..., None]
) -> None:
    wrong: list[str] = []
    by_doctor = 0
    for at, bit in flips(sound, region, seed):
        path = damaged(sound, memdir, at, bit)
        shutil.copy(path, path.with_suffix(".kept"))
        found = wrong_answers(sound, path)
        wrong += [f"bit {bit} of byte {at}: {name}: {value!r}" for name, value in found.items() if not is_allowed(name)]
        if found:
            by_doctor += 1
            if not is_found(path.with_suffix(".kept")):
                wrong.append(f"bit {bit} of byte {at}: not found by doctor: {found}")
    tally(f"attack: sqlite, {region}", tried=TRIALS, silent=by_doctor, wrong=len(wrong))
    assert not wrong, "\n".join(wrong[:20])


def test_after_an_unclean_end_no_list_is_shortened(
    memdir: Path, sound: Sound, seed: int, tally: Callable[..., None]
) -> None:
    wrong: list[str] = []
    refused = 0
    for region in ("page of an index", "inner page of an index"):
        for at, bit in flips(sound, region, seed):
            path = damaged(sound, memdir, at, bit)
            locks = Path(f"{path}.locks")
            locks.mkdir()
            (locks / "open").write_bytes(b"open")  # as whoever is killed leaves it
            try:
                holdfast.open(f"sqlite:///{path}?durability=normal").close()
            except HoldfastError:
                refused += 1
                continue
            found = wrong_answers(sound, path)
            wrong += [f"bit {bit} of byte {at}: {name}: {value!r}" for name, value in found.items()]
    tally("attack: sqlite, indexes after an unclean end", tried=2 * TRIALS, refused=refused, wrong=len(wrong))
    assert not wrong, "\n".join(wrong[:20])
