"""The page of all runs: filtered, paged by key, with what waits for a person on top."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from holdfast.engine.app import Holdfast
from holdfast.engine.workflow.declare import registered_names
from holdfast.errors import HoldfastError
from holdfast.kernel.model import ENDED, Status
from holdfast.present.about import newest
from holdfast.present.status import Standing, remark, standings
from holdfast.present.words import short
from holdfast.ui import shapes
from holdfast.ui.api.problems import Refused, without_place
from holdfast.ui.pages.addresses import with_query
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.questions import look
from holdfast.ui.pages.words import in_buttons
from holdfast.views import Page, RunInfo

PAGE = 50  # runs
ON_TOP = 3  # questions that are shown before the runs
COUNTED = 50  # questions that are counted
_NOW = 100  # characters of what a run does now
_MOST = 5_000  # runs of which it is remembered what their newest entry is about


class Row(Struct, frozen=True):
    """A run in the table."""

    info: RunInfo
    standing: Standing
    now: str  # what it does, waits for, or failed with
    seconds: float  # from its first entry to its last, or to now


class Newest:
    """What the newest entries of runs are about. An entry never changes, so it is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def of(self, hf: Holdfast, info: RunInfo) -> str:
        """What the newest entry of the run is about; nothing, if that cannot be read."""
        key = (info.uid, info.seq)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        told = self._read(hf, info)
        with self._lock:
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[key] = told
        return told

    def _read(self, hf: Holdfast, info: RunInfo) -> str:
        try:
            [entry] = hf.get(info.id).entries(after=str(info.seq - 1) if info.seq else None, limit=1)
        except (HoldfastError, ValueError):  # encrypted, damaged, deleted: the run's own page says it
            return ""
        return newest(entry)


_newest = Newest()


def rows_of(hf: Holdfast, infos: tuple[RunInfo, ...]) -> list[Row]:
    """Runs as rows of a table."""
    now = datetime.now(UTC)
    rows: list[Row] = []
    for info, stands in zip(infos, standings(hf, infos), strict=True):
        ended, note = info.status in ENDED, without_place(in_buttons(stands.told), hf.place)
        told = note or remark(info) if info.status is Status.COMPLETED else note or _newest.of(hf, info)
        seconds = ((info.updated_at if ended else now) - info.created_at).total_seconds()
        rows.append(Row(info, stands, short(told, _NOW), max(seconds, 0.0)))
    return rows


def page(ask: Ask) -> Response:
    """All runs."""
    wanted, problems = _wanted(ask)
    wrong = any(problems.values())
    found = ask.hf.runs(**wanted, limit=PAGE, after=ask.one("after") or None) if not wrong else Page[RunInfo](())
    asked, more = look(ask.hf, enough=COUNTED)
    top = asked if not ask.one("after") else []
    given = {name: ask.one(name) for name in ("workflow", "tag", "q", "from", "to")}
    statuses = ask.all("status")
    return ask.render(
        "runs.html",
        status=422 if wrong else 200,
        title="Runs",
        live="store",
        rows=rows_of(ask.hf, found.items),
        counts=_counts(ask),
        statuses=statuses,
        given=given,
        filtered=any(given.values()) or bool(statuses),
        problems=problems,
        workflows=sorted(registered_names() | {info.workflow for info in found.items if info.workflow}),
        asked=f"{len(asked):,}{'+' if more else ''}",
        first=with_query("/", {**given, "status": statuses}) if ask.one("after") else None,
        next=with_query("/", {**given, "status": statuses, "after": found.next}) if found.next else None,
        toggled={status: _toggled(given, statuses, status) for status in Status},
        questions=top[:ON_TOP],
        more_questions=len(top) > ON_TOP,
    )


def _counts(ask: Ask) -> dict[str, str]:
    """How many runs of each status there are, as text; many are not counted to the last one."""
    found: shapes.Counts = ask.perform("count_runs")
    numbers = {str(status): found.counts.get(str(status), 0) for status in Status}
    return {status: f"{number:,}{'+' if number >= found.upto else ''}" for status, number in numbers.items()}


def _toggled(given: dict[str, str], statuses: list[str], status: str) -> str:
    """The address of the same page with one status more, or less."""
    left = [one for one in statuses if one != status]
    return with_query("/", {**given, "status": left if status in statuses else [*left, status]})


def _wanted(ask: Ask) -> tuple[dict[str, Any], dict[str, str]]:
    """What `Holdfast.runs` is asked for, and what is wrong with the parameters that are not among it."""
    unknown = [status for status in ask.all("status") if status not in list(Status)]
    if unknown:
        raise Refused(422, "UnknownStatus", f"{unknown[0]!r} is no status; there are {', '.join(Status)}")
    problems = {"tag": "", "from": "", "to": ""}
    wanted: dict[str, Any] = {
        "status": ask.all("status") or None,
        "workflow": ask.one("workflow") or None,
        "prefix": ask.one("q") or None,
    }
    tags = _tags(ask.one("tag"))
    if tags is None:
        problems["tag"] = "a tag is name=value, such as customer=17; several with commas between them"
    wanted["tags"] = tags or None
    for name, argument in (("from", "created_from"), ("to", "created_before")):
        try:
            day = datetime.strptime(ask.one(name), "%Y-%m-%d").astimezone() if ask.one(name) else None
        except ValueError:
            problems[name] = "a day such as 2026-01-31 is wanted"
            continue
        wanted[argument] = day + timedelta(days=1) if day is not None and name == "to" else day
    return wanted, problems


def _tags(text: str) -> dict[str, str] | None:
    """Tags that were typed as ``name=value, name=value``; None if they were not."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not sign or not name.strip() for name, sign, _ in pairs):
        return None
    return {name.strip(): value.strip() for name, _, value in pairs}
