"""A pytest plugin: which tests `make test` leaves to `make test-all`, which need a program that is not installed.

A slow test names the faster one that covers its behaviour: ``@pytest.mark.slow(covered_by="tests/x.py::test_y")``.
Tests whose program is missing are skipped, and the end of a test run has one line per reason. Under CI=true a skipped
test is a failed one.
"""

import gc
import os
from collections import Counter
from collections.abc import Generator
from typing import TypeVar

import programs
import pytest
from sizes import PROFILE

NOTHING_IS_SKIPPED = os.environ.get("CI") == "true"

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


STORES = ("memory", "files", "sqlite", "postgres")
ON_EVERY_STORE = ("contract", "crash", "damage", "golden", "model")
UNCOVERED = pytest.StashKey[list[str]]()  # see tests/test_selection.py


def pytest_configure() -> None:
    """Reject an unknown store in HOLDFAST_STORES."""
    chosen = os.environ.get("HOLDFAST_STORES")
    if chosen and (unknown := set(chosen.split(",")) - set(STORES)):
        raise pytest.UsageError(f"HOLDFAST_STORES names {', '.join(sorted(unknown))}; there are {', '.join(STORES)}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is left to `make test-all`, and skip the tests whose program is missing."""
    if "HOLDFAST_STORES" not in os.environ:
        _keep_one_store(items)
    for item in items:
        for mark in item.iter_markers("needs"):
            if why := programs.why_missing(*mark.args):
                item.add_marker(pytest.mark.skip(reason=why))
    if PROFILE == "torture":
        _try_other_chances(items)
    config.stash[UNCOVERED] = _uncovered(items) if config.args == config.getini("testpaths") else []


def pytest_collection_finish() -> None:
    """Exclude the modules and the thousands of tests from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()


def _keep_one_store(items: list[pytest.Item]) -> None:
    """Of a test that runs on several stores, SQLite among them, leave the others to `make test-all`.

    But for what makes stores alike: the contract, crash points, random histories and damage, and stored formats.
    """
    chosen = [item for item in items if item.path.parent.name not in ON_EVERY_STORE]
    stores = {item: found for item in chosen if (found := _store_of(item))}
    on_sqlite = {_function(item) for item, store in stores.items() if store == "sqlite"}
    for item, store in stores.items():
        if store != "sqlite" and _function(item) in on_sqlite and not _is_long(item):
            item.add_marker(pytest.mark.slow(covered_by=_function(item)))


def _store_of(item: pytest.Item) -> str | None:
    """The store that a parameter of the test names: `sqlite`, or `sqlite:///{}/runs.db`."""
    callspec = getattr(item, "callspec", None)
    values = [value for value in callspec.params.values() if type(value) is str] if callspec is not None else []
    schemes = [value.partition(":")[0] for value in values if value in STORES or "{}" in value]
    return next((scheme for scheme in schemes if scheme in STORES), None)


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "torture"))


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _uncovered(items: list[pytest.Item]) -> list[str]:
    """The slow tests that do not name a faster one of the same behaviour: `@pytest.mark.slow(covered_by=...)`."""
    quick = {prefix for item in items if not _is_long(item) for prefix in (item.nodeid, _function(item))}
    wrong = []
    for item in items:
        for mark in item.iter_markers("slow"):
            named = str(mark.kwargs.get("covered_by"))
            if named not in quick and not any(one.startswith(f"{named}::") for one in quick):
                wrong.append(f"{item.nodeid} is slow, and covered by {named}, which is no test of `make test`")
    return wrong


def _try_other_chances(items: list[pytest.Item]) -> None:
    """Add all random tests to `make torture`, which gives them new seeds."""
    for item in items:
        if item.get_closest_marker("hypothesis") or "seed" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.torture)


# Both run where the test runs, so with xdist in the worker, and see the report after pytest's own hooks are done.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return fail_if_skipped((yield))


def fail_if_skipped(report: Report) -> Report:
    """Under CI=true a test that was skipped, or was expected to fail and did, counts as failed."""
    if not (NOTHING_IS_SKIPPED and report.skipped):
        return report
    if hasattr(report, "wasxfail"):
        what, why = "expected to fail", report.wasxfail
        del report.wasxfail  # pytest does not count a failure that still carries this mark
    else:
        what, why = "skipped", reason_of(report)
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid} was {what}, which is a failure when CI=true\nits reason: {why or 'none given'}"
    return report


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    return told.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how many tests were skipped for each reason."""
    reasons = Counter(reason_of(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped")
        for why, many in sorted(reasons.items()):
            terminalreporter.write_line(f"{many} {'test' if many == 1 else 'tests'}: {why}")
