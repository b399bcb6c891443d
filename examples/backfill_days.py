"""What backfill.yaml calls: which days there are, and how one of them is loaded."""

from datetime import date, timedelta
from pathlib import Path


def days_from(first: str, count: int) -> list[str]:
    """So many days, from the first on."""
    begin = date.fromisoformat(first)
    return [(begin + timedelta(days=n)).isoformat() for n in range(count)]


def load_day(day: str, folder: str) -> int:
    """Load one day; how many rows it has. Loading it again gives the same."""
    rows = [f"{day},{hour},{hour * hour}" for hour in range(24)]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{day}.csv").write_text("\n".join(rows))
    return len(rows)


def drop_day(day: str, folder: str) -> None:
    """Take a loaded day away again."""
    (Path(folder) / f"{day}.csv").unlink(missing_ok=True)
