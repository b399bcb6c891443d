"""Programs that some tests need and that no Python package brings.

A test names what it needs: ``@pytest.mark.needs("pgbouncer")``. Where the program is missing, the test is skipped, and
the end of the test run shows one line per program with the command that installs it (see conftest.py).
"""

import os
import shutil

INSTALL = {
    "chromium": "sudo apt-get install chromium",
    "faketime": "sudo apt-get install faketime",
    "npm": "sudo apt-get install npm",
    "pgbouncer": "sudo apt-get install pgbouncer",
}
ALSO_NAMED = {"chromium": ("chromium-browser",)}


def find(program: str) -> str | None:
    """Return the program's path. Debian installs servers into a folder that is not on an ordinary user's PATH."""
    path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin"
    names = (program, *ALSO_NAMED.get(program, ()))
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def why_missing(program: str) -> str | None:
    """Return the reason to skip a test that needs the program; None if the program is there."""
    if program not in INSTALL:
        raise LookupError(f"{program!r} is not listed in tests/lib/programs.py")
    return None if find(program) else f"{program} is not installed: {INSTALL[program]}"
