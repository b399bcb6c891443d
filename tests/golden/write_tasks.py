"""Write the journal of tasks as this Python writes it: ``.venv-3.13/bin/python tests/golden/write_tasks.py``.

``tasks-3.11.db.gz`` and ``tasks-3.13.db.gz`` are SQLite stores with one run that waits in its tasks. Python 3.11
creates a task for `asyncio.wait_for`, and later ones do not; any of them resumes both (see test_tasks.py).
"""

import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "lib"))

import golden_tasks  # noqa: E402

import holdfast  # noqa: E402


def main() -> None:
    written = HERE / f"tasks-{sys.version_info[0]}.{sys.version_info[1]}.db.gz"
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder) / "runs.db", Path(folder) / "small.db"
        with holdfast.open(f"sqlite:///{path}") as hf:
            hf.start(golden_tasks.serves, id="r")
        db = sqlite3.connect(path)
        db.execute("VACUUM INTO ?", (str(small),))
        db.close()
        written.write_bytes(gzip.compress(small.read_bytes(), mtime=0))
    print(f"{written.name}: {written.stat().st_size:,} bytes, {golden_tasks.charged}")


if __name__ == "__main__":
    main()
