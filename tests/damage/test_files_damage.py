"""The files of a run are cut off and changed at every byte: a typed error or a true prefix, and nothing else.

`make torture` tries every byte, and the others some of them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenario import read_tree, write_tree
from sizes import draw

import holdfast
from holdfast import Keyring

FILES = ["journal.jsonl", "run.json", "holdfast.json"]
CHUNKS = 4
SOME = (8, 60)  # of the bytes of a chunk


class Victim:
    """A store to be damaged, and put back as it was."""

    def __init__(self, folder: Path, fill: Callable[[Any], Any], keys: Keyring | None) -> None:
        self.root, self.url = folder / "store", f"files:///{folder / 'store'}"
        with holdfast.open(self.url, keys=keys) as hf:
            self.truth = fill(hf)
            uid = hf.get("victim").uid
        self.tree = read_tree(str(self.root))
        self.home = next(
            Path(path).parent
            for path, data in self.tree.items()
            if path.endswith("run.json") and data is not None and uid.encode() in data
        )

    def path(self, name: str) -> Path:
        return self.root / (name if name == "holdfast.json" else self.home / name)

    def whole(self, name: str) -> bytes:
        data = self.tree[str(self.path(name).relative_to(self.root))]
        assert data is not None
        return data

    def damage(self, name: str, data: bytes) -> None:
        """Put everything back, but for one file."""
        for path in self.root.rglob("*"):
            relative = str(path.relative_to(self.root))
            if path.is_file() and path.read_bytes() != self.tree.get(relative):
                path.unlink()
        write_tree(str(self.root), {path: data for path, data in self.tree.items() if not (self.root / path).exists()})
        self.path(name).write_bytes(data)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_off(
    name: str, chunk: int, memdir: Path, filled: Any, examiner: Any, seed: int, tally: Callable[..., None]
) -> None:
    victim = Victim(memdir, filled, None)
    examine = examiner(victim.truth)
    whole = victim.whole(name)
    for size in draw(range(chunk, len(whole), CHUNKS), seed, *SOME):
        victim.damage(name, whole[:size])
        examine.examine(f"{name} cut to {size} of {len(whole)} bytes", victim.url, others=name != "holdfast.json")
    tally(f"damage: files, {name} cut off", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


def flip(memdir: Path, fill: Any, examiner: Any, name: str, places: Any, keys: Keyring | None) -> Any:
    victim = Victim(memdir, fill, keys)
    examine = examiner(victim.truth)
    whole = victim.whole(name)
    for at, bit in places(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        victim.damage(name, bytes(changed))
        examine.examine(f"{name} bit {bit} of byte {at}", victim.url, keys=keys, others=name != "holdfast.json")
    return examine


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit(
    name: str, chunk: int, memdir: Path, filled: Any, examiner: Any, seed: int, tally: Callable[..., None]
) -> None:
    examine = flip(
        memdir,
        filled,
        examiner,
        name,
        lambda size: ((at, at % 8) for at in draw(range(chunk, size, CHUNKS), seed, *SOME)),
        None,
    )
    tally(f"damage: files, {name} flipped", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_what_is_encrypted(
    name: str, memdir: Path, filled: Any, examiner: Any, seed: int, tally: Callable[..., None]
) -> None:
    keys = Keyring({"k": b"k" * 32}, current="k")
    examine = flip(
        memdir, filled, examiner, name, lambda size: ((at, at % 8) for at in draw(range(0, size, 7), seed, *SOME)), keys
    )
    tally(f"damage: files encrypted, {name} flipped", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


@pytest.mark.torture
@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit(
    name: str, bit: int, memdir: Path, filled: Any, examiner: Any, tally: Callable[..., None], keys: Keyring | None
) -> None:
    examine = flip(memdir, filled, examiner, name, lambda size: ((at, bit) for at in range(size)), keys)
    tally(f"damage: files, any bit of {name} flipped", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


@pytest.mark.parametrize("name", [name for name in FILES if name != "holdfast.json"])
def test_a_file_that_is_missing(name: str, memdir: Path, filled: Any, examiner: Any) -> None:
    victim = Victim(memdir, filled, None)
    examine = examiner(victim.truth)
    victim.path(name).unlink()
    examine.examine(f"{name} missing", victim.url)
    examine.verdict()
    assert examine.errors.get("RunDamaged")


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"until": 7}', b"\xff" * 40])
def test_a_worker_whose_file_is_damaged_keeps_its_runs_while_it_lives(memdir: Path, damage: bytes) -> None:
    url = f"files:///{memdir / 'store'}"
    with holdfast.open(url) as hf, holdfast.open(url) as other:
        run = hf.run("held")
        run.claim()
        [file] = (memdir / "store" / "workers").glob("*.json")
        file.write_bytes(damage)
        with pytest.raises(holdfast.Claimed):
            other.get("held").claim()
        with pytest.raises(holdfast.errors.StoreDamaged, match="workers"):
            other.client.store.workers()
        run.release()
