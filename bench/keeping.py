"""bench/results.json: figures by name with their spread and goals, where and of what they were measured.

Each part is kept when it is done, with a digest of the code that it measured; so a measurement that was interrupted
goes on with the parts that are missing, and after a change of the code all of them are measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.database import ask, postgres
from bench.harness import AtLeast, Goals, Measured

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results.json"
DIGITS = 6  # that a figure is kept with


def digest_of_the_tree() -> str:
    """Of the code that is measured, and of what measures it."""
    digest = hashlib.sha256()
    files = [path for folder in ("src", "bench") for path in (ROOT / folder).rglob("*")]
    for path in sorted(path for path in files if path.suffix in (".py", ".sql", ".txt")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def commit() -> str:
    """The commit of the code that is measured, marked if the code differs from it."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if told.returncode:
        return "not in a repository"
    paths = ["src", "bench", ":!bench/results.json"]
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return told.stdout.strip() + ("-dirty" if changed.stdout else "")


def environment(folder: Path) -> dict[str, str]:
    """Of this machine, as far as figures depend on it."""
    return {
        "cpu": processor(),
        "cores": str(os.cpu_count()),
        "machine": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": filesystem(folder),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "postgres": postgres_version(),
        "holdfast": version("holdfast"),
        "msgspec": version("msgspec"),
        "psycopg": version("psycopg"),
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def filesystem(folder: Path) -> str:
    """The type of the file system that a folder lies in: of all that hold it, the one mounted deepest."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(place, kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(holding, key=lambda each: len(each[0]), default=("", "unknown"))[1]


def postgres_version() -> str:
    with postgres() as server:
        [(told,)] = ask(server.url, "SHOW server_version")
    return str(told)


class Results:
    """What was measured, and is kept."""

    def __init__(self, environment: Mapping[str, str], path: Path = RESULTS) -> None:
        self._path = path
        kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.same_machine = kept.get("environment") == dict(environment)
        self._kept: dict[str, Any] = {
            "environment": dict(environment),
            "commit": kept.get("commit", ""),
            "parts": kept.get("parts", {}) if self.same_machine else {},
            "figures": kept.get("figures", {}),
            "spread": kept.get("spread", {}),
            "goals": kept.get("goals", {}),
            "versions": kept.get("versions", {}),
            "durability": kept.get("durability", {}),
        }

    def has(self, part: str, tree: str) -> bool:
        """Whether a part was measured on this tree."""
        return bool(self._kept["parts"].get(part, {}).get("tree") == tree)

    def keep(self, part: str, figures: Mapping[str, float], goals: Goals, about: Mapping[str, Any]) -> None:
        """Replace what was kept of a part. ``about``: the tree and the commit that were measured, the seconds taken."""
        for name in self._kept["parts"].get(part, {}).get("names", ()):
            for kind in ("figures", "spread", "goals"):
                self._kept[kind].pop(name, None)
        self._kept["figures"] |= {name: rounded(value) for name, value in figures.items()}
        for name, value in figures.items():
            if isinstance(value, Measured):
                self._kept["spread"][name] = [rounded(end) for end in value.spread]
        self._kept["goals"] |= {name: told(goal) for name, goal in goals.items() if name in figures}
        self._kept["parts"][part] = {**about, "names": sorted(figures)}
        self._kept["commit"] = about["commit"]
        self._write()

    def note(self, kind: str, found: Mapping[str, Any]) -> None:
        """Keep versions, or how durable each system was."""
        self._kept[kind] |= found
        self._write()

    def tidy(self, parts: Mapping[str, Any]) -> None:
        """Forget figures of parts that are no more."""
        self._kept["parts"] = {name: part for name, part in self._kept["parts"].items() if name in parts}
        names = {name for part in self._kept["parts"].values() for name in part["names"]}
        for kind in ("figures", "spread", "goals"):
            self._kept[kind] = {name: value for name, value in self._kept[kind].items() if name in names}
        self._write()

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        new.replace(self._path)


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def told(goal: float) -> dict[str, float]:
    return {"at_least" if isinstance(goal, AtLeast) else "at_most": rounded(goal)}
