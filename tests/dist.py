"""Check what `make dist` has built: metadata, contents, and that the wheel works where nothing of this folder is.

The wheel is installed into an empty environment. There, outside of the repository, README's first example and the
tutorials are executed and must print what they say.
"""

import argparse
import email
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lib"))

from documents import fault_of  # noqa: E402 (the path is set above)

TUTORIALS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
README = ROOT / "README.md"
CLASSIFIED = ("Development Status", "Operating System", "Programming Language", "Topic", "Typing")
URLS = ("Changelog", "Documentation", "Issues", "Source")
NOT_SHIPPED = (".venv", ".git/", ".ci/", "__pycache__", ".keep")


class Unfit(Exception):
    """The distribution may not be published; the message says why."""


def only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise Unfit(f"{folder} has {len(found)} files {pattern}, not one")
    return found[0]


def check_wheel(wheel: Path) -> str:
    """Check names and metadata of a wheel; return its version."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = email.message_from_bytes(archive.read(metadata))
    stray = [name for name in names if not name.startswith(("holdfast/", "holdfast-"))]
    if stray:
        raise Unfit(f"the wheel installs more than the package: {', '.join(stray)}")
    for needed in ("holdfast/py.typed", "holdfast/__init__.py"):
        if needed not in names:
            raise Unfit(f"the wheel has no {needed}")
    sources = {path.relative_to(ROOT / "src").as_posix() for path in shipped_sources()}
    if missing := sources - set(names):
        raise Unfit(f"the wheel lacks {', '.join(sorted(missing))}")
    classifiers = told.get_all("Classifier") or []
    for family in CLASSIFIED:
        if not any(one.startswith(f"{family} ::") for one in classifiers):
            raise Unfit(f"the metadata has no classifier {family!r}")
    urls = {one.partition(",")[0] for one in told.get_all("Project-URL") or []}
    if lacking := set(URLS) - urls:
        raise Unfit(f"the metadata has no project URL for {', '.join(sorted(lacking))}")
    return str(told["Version"])


def shipped_sources() -> Iterator[Path]:
    for path in (ROOT / "src" / "holdfast").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".keep":
            yield path


def check_sdist(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "tests/conftest.py"):
        if needed not in names:
            raise Unfit(f"the sdist has no {needed}")
    if stray := [name for name in names if any(part in name for part in NOT_SHIPPED)]:
        raise Unfit(f"the sdist has {', '.join(stray[:5])}")


def run(*command: str, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Unfit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_installed(wheel: Path, version: str, base: str) -> None:
    """Install the wheel into an empty environment; execute the documents there."""
    with tempfile.TemporaryDirectory(prefix="holdfast-dist-") as name:
        outside = Path(name)
        print(f"installing {wheel.name} into an empty environment ...", flush=True)
        run(base, "-m", "venv", str(outside / "env"), cwd=outside)
        python = str(outside / "env" / "bin" / "python")
        run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", f"{wheel}[crypto]", cwd=outside)
        where = Path(run(python, "-c", "import holdfast; print(holdfast.__file__)", cwd=outside).strip())
        if not where.is_relative_to(outside):
            raise Unfit(f"holdfast was imported from {where}")
        if (
            said := run(str(outside / "env" / "bin" / "holdfast"), "--version", cwd=outside)
        ) != f"holdfast {version}\n":
            raise Unfit(f"holdfast --version says {said!r}, the wheel's metadata {version}")
        first = next(n for n, line in enumerate(README.read_text().splitlines(), 1) if line.startswith("## "))
        for document, before in [(README, first), *((tutorial, None) for tutorial in TUTORIALS)]:
            which = "the first example of " if before else ""
            print(f"executing {which}{document.relative_to(ROOT)} there ...", flush=True)
            scratch = outside / document.stem
            scratch.mkdir()
            if fault := fault_of(document, scratch, before=before, python=python):
                raise Unfit(fault)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where wheel and sdist are")
    folder = parser.parse_args().folder.resolve()
    try:
        wheel, sdist = only(folder, "*.whl"), only(folder, "*.tar.gz")
        version = check_wheel(wheel)
        check_sdist(sdist)
        print(run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist), cwd=folder).strip())
        check_installed(wheel, version, sys.executable)
    except Unfit as unfit:
        sys.exit(f"not fit to publish: {unfit}")
    print(f"{wheel.name} and {sdist.name} are fit to publish")


if __name__ == "__main__":
    main()
