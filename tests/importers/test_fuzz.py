"""Whatever is in the files, an importer tells it and goes on. The seed of a failure is printed."""

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.importers import import_from

ROUNDS = 60


def bytes_of(rng: random.Random, good: bytes) -> bytes:
    """Something that is nearly the good file, or not at all."""
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(400))
        case 1:
            return good[: rng.randrange(len(good))]
        case 2:
            flipped = bytearray(good)
            for _ in range(rng.randrange(1, 8)):
                flipped[rng.randrange(len(flipped))] = rng.randrange(256)
            return bytes(flipped)
        case 3:
            start, end = sorted(rng.choices(range(len(good)), k=2))
            return good[:start] + good[end:]
        case 4:
            start, end = sorted(rng.choices(range(len(good)), k=2))
            return good[:end] + good[start:]
        case _:
            return changed(rng, good)


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    2**64,
    1e300,
    "",
    "x" * 2000,
    "\0",
    "../../x",
    [],
    {},
    [[]],
    {"": {}},
    "é\u2028",
]


def changed(rng: random.Random, good: bytes) -> bytes:
    """A value somewhere in the record is another one: still JSON."""
    lines = [json.loads(line) for line in good.splitlines()] if good.count(b"\n{") else [json.loads(good)]
    for _ in range(rng.randrange(1, 4)):
        at: Any = rng.choice(lines)
        while True:
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], dict | list) or not at[key] or rng.random() < 0.3:
                break
            at = at[key]
        at[key] = copy.deepcopy(rng.choice(ODD))  # it may be changed in its turn
    return b"\n".join(json.dumps(line).encode() for line in lines)


@pytest.mark.parametrize("round", range(3))
def test_no_file_breaks_an_importer(system: str, round: int, left: Callable, seed: int) -> None:
    rng = random.Random(seed)
    folder: Path = left(system)
    files = [path for path in folder.rglob("*") if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    for _ in range(ROUNDS):
        for path in files:
            good = contents[path]
            path.write_bytes(bytes_of(rng, good) if rng.random() < 0.7 and good.startswith(b"{\n") else good)
            if path.suffix == ".jsonl":
                path.write_bytes(bytes_of(rng, good))
        with holdfast.open("memory://") as hf:
            first = import_from(system, folder, hf)
            second = import_from(system, folder, hf)
            assert (second.imported, second.already) == ((), first.imported)
            assert second.damaged == first.damaged
            assert len(hf.runs(limit=1000)) == len(first.imported)
            for info in hf.runs(limit=1000):
                hf.get(info.id).checkpoint().state  # noqa: B018
                hf.get(info.id).audit()
