"""Write the golden stores anew: ``.venv/bin/python tests/golden/write.py``.

They are small stores of every kind, written by one version and read by every later one (see test_golden.py). Write them
anew only when a format changes on purpose before it was released: what a released version has written must be read for
ever, so then add stores beside these.

    runs.db.gz     the file of a SQLite store
    files.tar.gz   the folder of a files store
    postgres.sql   a schema of PostgreSQL, as SQL
"""

import gzip
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "lib"))

import golden_runs  # noqa: E402
import pgserver  # noqa: E402

from holdfast.stores import migrate  # noqa: E402

SCHEMA = "golden"


def write_sqlite(scratch: Path) -> None:
    path = scratch / "runs.db"
    golden_runs.fill(f"sqlite:///{path}")
    with sqlite3.connect(path) as db:
        db.execute("VACUUM INTO ?", (str(scratch / "small.db"),))
    (HERE / "runs.db.gz").write_bytes(gzip.compress((scratch / "small.db").read_bytes(), mtime=0))


def write_files(scratch: Path) -> None:
    golden_runs.fill(f"files:///{scratch / 'files'}")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(scratch / "files", "files", filter=_plain)
    (HERE / "files.tar.gz").write_bytes(gzip.compress(buffer.getvalue(), mtime=0))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Of nobody, and of no time."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def write_postgres(scratch: Path) -> None:
    server = pgserver.found() or pgserver.Shared(scratch)
    try:
        url = f"{server.url}{'&' if '?' in server.url else '?'}schema={SCHEMA}"
        migrate(url)
        golden_runs.fill(url)
        dump = [str(pgserver.programs() / "pg_dump"), "--schema", SCHEMA, "--no-owner", "--no-privileges", server.url]
        text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
        # Settings of the session and comments belong to the server that wrote it.
        kept = [line for line in text.splitlines() if not line.startswith(("--", "SET ", "\\restrict", "\\unrestrict"))]
        (HERE / "postgres.sql").write_text("\n".join(kept) + "\n")
    finally:
        server.leave()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        scratch.chmod(0o755)  # the server runs as another user
        os.chdir(scratch)
        write_sqlite(scratch)
        write_files(scratch)
        write_postgres(scratch)
        shutil.rmtree(scratch / "files")
    for name in ("runs.db.gz", "files.tar.gz", "postgres.sql"):
        print(f"{name}: {(HERE / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
