"""What all tests share: the rule that nothing is skipped unseen, folders to work in, and the profiles of Hypothesis."""

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

# --- Nothing is skipped unseen ----------------------------------------------------------------------------------------

NOTHING_IS_SKIPPED = os.environ.get("CI") == "true"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def fail_if_skipped(report: Report) -> Report:
    """Under CI=true a test that was skipped, or was expected to fail and did, counts as failed."""
    if not (NOTHING_IS_SKIPPED and report.skipped):
        return report
    if hasattr(report, "wasxfail"):
        what, why = "expected to fail", report.wasxfail
        del report.wasxfail  # pytest does not count a failure that still carries this mark
    else:
        what, why = "skipped", str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} was {what}, which is a failure when CI=true\nits reason: {why or 'none given'}"
    return report


# Both run where the test runs, so with xdist in the worker, and see the report after pytest's own hooks are done.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return fail_if_skipped((yield))


# --- Hypothesis: HOLDFAST_PROFILE chooses; a failure prints the blob that repeats it ----------------------------------

settings.register_profile(
    "default",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("torture", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HOLDFAST_PROFILE", "default"))


# --- Folders ----------------------------------------------------------------------------------------------------------

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def memdir(tmp_path: Path) -> Iterator[Path]:
    """A folder of this test alone, in memory where the system has such a place: syncing costs nothing there."""
    if not (SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK | os.X_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=SHARED_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder of this test alone on a real disk, for what depends on real syncing."""
    return tmp_path


# --- Stores -----------------------------------------------------------------------------------------------------------
