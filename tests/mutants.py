"""Test the tests: break the code as the tables of mutants say, one fault at a time; the named tests must go red.

Each mutant gets its own copy of the tree, in memory where possible, so the work tree is never touched. The selections
are first run on an unbroken copy: a test that is red anyway proves nothing. Exits 1 if a mutant survived or could not
be judged.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mutants_cli import MUTANTS as CLI
from mutants_graphs import MUTANTS as GRAPHS
from mutants_importers import MUTANTS as IMPORTERS
from mutants_moves import MUTANTS as MOVES
from mutants_pages import MUTANTS as PAGES
from mutants_table import MUTANTS as KERNEL
from mutants_table import Mutant
from mutants_workflows import MUTANTS as WORKFLOWS

MUTANTS = [*KERNEL, *WORKFLOWS, *GRAPHS, *IMPORTERS, *MOVES, *CLI, *PAGES]

ROOT = Path(__file__).resolve().parent.parent
COPIED = ["pyproject.toml", "src", "tests", "README.md", "docs", "examples", "bench"]
AT_ONCE = 2
BASELINE_LIMIT = 900.0  # seconds

# The editable install points at the work tree; the child proves that it tests the copy before it runs any test.
CHILD = """
import importlib.util, sys
from pathlib import Path
source, *arguments = sys.argv[1:]
found = importlib.util.find_spec("holdfast").origin
if not Path(found).resolve().is_relative_to(Path(source).resolve()):
    sys.exit(f"would test {found}, not the copy in {source}")
import pytest
status = int(pytest.main(arguments))
sys.exit(status + 100)  # so that a status of pytest is told from a crash of Python
"""
GREEN, RED = 100, 101


@dataclass(frozen=True)
class Outcome:
    status: int | None  # None: did not end in time
    seconds: float
    output: str


def copy_tree(to: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, to / name)


def run_tests(tree: Path, tests: str, limit: float) -> Outcome:
    """Run a selection in a copied tree, and end whatever processes it leaves behind."""
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not torture", *shlex.split(tests)]
    source = tree / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "HOLDFAST_PROFILE": "all"}
    began = time.monotonic()
    # Folders of its own: runs of pytest that share one get in each other's way when they tidy it.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment["PYTEST_DEBUG_TEMPROOT"] = folder
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(source), *arguments],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(child)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Outcome(status, time.monotonic() - began, text)


def end_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # nobody is left
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def faults_of_table(mutants: Iterable[Mutant]) -> list[str]:
    """Why some mutants cannot be made: found before the first test is run."""
    faults = []
    names = [mutant.name for mutant in mutants]
    faults += [f"{name}: the name is used twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for mutant in mutants:
        path = ROOT / mutant.file
        if not mutant.file.startswith("src/") or not path.is_file():
            faults.append(f"{mutant.name}: {mutant.file} is not a file under src/")
            continue
        text = path.read_text()
        if (count := text.count(mutant.old)) != 1:
            faults.append(f"{mutant.name}: its old text occurs {count} times in {mutant.file}, not once")
        elif mutant.old == mutant.new:
            faults.append(f"{mutant.name}: its old and new text are the same")
        elif path.suffix == ".py":
            try:
                compile(text.replace(mutant.old, mutant.new), mutant.file, "exec", dont_inherit=True)
            except SyntaxError as error:
                faults.append(f"{mutant.name}: not valid Python after the change: {error}")
    return faults


def baseline(tests: str, tree: Path) -> Outcome:
    outcome = run_tests(tree, tests, BASELINE_LIMIT)
    print(f"  {'green' if outcome.status == GREEN else 'NOT GREEN':<10} {outcome.seconds:6.1f} s  {tests}", flush=True)
    if outcome.status != GREEN:
        print(outcome.output, flush=True)
    return outcome


def judge(mutant: Mutant, limit: float, scratch: Path) -> str:
    """Make the mutant in a copy of its own and run its tests there."""
    tree = Path(tempfile.mkdtemp(dir=scratch))
    try:
        copy_tree(tree)
        broken = tree / mutant.file
        broken.write_text(broken.read_text().replace(mutant.old, mutant.new))
        outcome = run_tests(tree, mutant.tests, limit)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    if outcome.status in (RED, None):  # a suite that hangs is noticed too
        verdict = "killed"
    else:
        verdict = "SURVIVED" if outcome.status == GREEN else "ERROR"
    note = " (by time-out)" if outcome.status is None else ""
    print(f"  {verdict:<10} {outcome.seconds:6.1f} s  {mutant.name}{note}", flush=True)
    if verdict == "ERROR":
        print(outcome.output, flush=True)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", action="append", help="judge this mutant only (may be repeated)")
    only = parser.parse_args().only
    if unknown := set(only or []) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [mutant for mutant in MUTANTS if not only or mutant.name in only]
    if faults := faults_of_table(mutants):
        print("The table is wrong:", *faults, sep="\n  ")
        return 1

    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-mutants-", dir=memory) as folder,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        scratch = Path(folder)
        unbroken = scratch / "unbroken"
        unbroken.mkdir()
        copy_tree(unbroken)
        selections = sorted({mutant.tests for mutant in mutants})
        print(f"The unbroken code: {len(selections)} selections of tests")
        baselines = dict(zip(selections, pool.map(lambda tests: baseline(tests, unbroken), selections), strict=True))
        if any(outcome.status != GREEN for outcome in baselines.values()):
            print("Not green without any mutant: nothing can be learned from them.")
            return 1
        print(f"The mutants: {len(mutants)}")
        limits = [max(30.0, 10 * baselines[mutant.tests].seconds) for mutant in mutants]
        verdicts = list(pool.map(lambda mutant, limit: judge(mutant, limit, scratch), mutants, limits))

    print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("killed", "SURVIVED", "ERROR")))
    return 0 if verdicts.count("killed") == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
