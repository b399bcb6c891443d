"""Bits of any file of a files store are flipped at random: each answer is the right one, or a typed error."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sizes
import stocked
from stocked import answers, attempts, outcome, questions, stock, uids

import holdfast
from holdfast.errors import HoldfastError, RunNotFound

TRIALS = sizes.size(1, 8, 20)  # of each kind of file
KINDS = ("run.json", "journal.jsonl", "inbox", "taken", "forks", "documents", "workers", "holdfast.json")
# What workers look for is read from a part of run.json that is not verified; whatever they take is.
BY_SKETCH = ("due", "backlog", "queues", "next wake", "orphans", "recover")
BY_UID = ("journal", "read", "inbox", "taken")  # a damaged uid is that of no run; by its id the run is damaged


class Sound(NamedTuple):
    """A store without damage, the uids of its runs, and its answers."""

    folder: Path
    known: dict[str, str]
    truth: dict[str, Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    folder = tmp_path_factory.mktemp("sound") / "store"
    stock(lambda: holdfast.open(f"files:///{folder}"))
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    with holdfast.open(f"files:///{copy}") as hf:
        known = uids(hf)
        return Sound(folder, known, answers(hf, known))


def kind_of(path: Path) -> str | None:
    return next((kind for kind in (path.name, path.parent.name, path.parent.parent.name) if kind in KINDS), None)


def wrong_answers(sound: Sound, folder: Path) -> dict[str, Any]:
    try:
        hf = holdfast.open(f"files:///{folder}")
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


def shows_damage(name: str, value: Any) -> bool:
    """Whether the damaged run is shown as blocked, with the reason; so it stands in other lists than before."""
    is_list = name.split()[0] in ("runs", "all", "counts", "forks") and isinstance(value, list | dict)
    return is_list or getattr(value, "status", None) == "blocked" or (name.split()[0] in BY_UID and not value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_right_or_a_typed_error(
    kind: str, memdir: Path, sound: Sound, seed: int, tally: Callable[..., None]
) -> None:
    chosen = random.Random(f"{seed} {kind}")
    paths = sorted(
        path for path in sound.folder.rglob("*") if path.is_file() and path.stat().st_size and kind_of(path) == kind
    )
    assert paths
    wrong: list[str] = []
    for trial in range(TRIALS):
        path = chosen.choice(paths)
        data = bytearray(path.read_bytes())
        at, bit = chosen.randrange(len(data)), chosen.randrange(8)
        data[at] ^= 1 << bit
        folder = memdir / str(trial)
        shutil.copytree(sound.folder, folder)
        (folder / path.relative_to(sound.folder)).write_bytes(bytes(data))
        where = f"bit {bit} of byte {at} of {path.relative_to(sound.folder)}"
        wrong += [
            f"{where}: {name}: {value!r}"
            for name, value in wrong_answers(sound, folder).items()
            if name not in BY_SKETCH and not shows_damage(name, value)
        ]
    tally(f"attack: files, {kind}", tried=TRIALS, wrong=len(wrong))
    assert not wrong, "\n".join(wrong[:20])
