"""The page of one run: how it stands, what it asks, what it did and when, and what came of it."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from holdfast.cli.story import task_name
from holdfast.cli.unfinished import untaken_answers
from holdfast.engine.run.handle import Run
from holdfast.errors import ExtraMissing, HoldfastError, KeyMissing, Redacted, RunDamaged
from holdfast.graph.draw.run_path import drawn
from holdfast.graph.draw.svg import svg
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.ui.chart import Chart, chart
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.given import given_to
from holdfast.ui.pages.questions import Form, form
from holdfast.ui.pages.standing import Standing, goes_on_when_let, standing
from holdfast.ui.shapes import etag_of
from holdfast.ui.timeline import SECOND, Bar, Reel
from holdfast.views import EntryContents, Output, RunInfo

WINDOW = 300  # entries that the timeline shows
OUTPUTS = 12  # of the newest notes and values that are shown
_LOOKED_THROUGH = 400  # entries that are looked through for outputs

TABS = (("Overview", ""), ("State", "state"), ("Effects", "effects"), ("Family", "family"), ("Journal", "journal"))

_GOES_ON = {Status.READY: "It goes on when {who}.", Status.RUNNING: "It goes on."}
_DONE = {  # what was done, by the word in the address, and what is said of it while the run stands so
    "answered": {status: f"Answered. {told}" for status, told in _GOES_ON.items()},
    "declined": {Status.WAITING: "It keeps waiting."},
    "forked": {
        **{status: f"This is the new run. {told}" for status, told in _GOES_ON.items()},
        Status.WAITING: "This is the new run.",
    },
    "cancelled": {
        **dict.fromkeys(
            set(Status) - ENDED - {Status.AWAY}, "It is cancelled as soon as whoever drives it hears of it."
        ),
        Status.CANCELLED: "It is cancelled.",
    },
    "retried": _GOES_ON,
    "resolved": {
        **{status: f"What became of the step is on record. {told}" for status, told in _GOES_ON.items()},
        Status.BLOCKED: "What became of the step is on record.",
    },
}


def said(word: str, info: RunInfo) -> str:
    """What is said of what was done, as long as it fits: nothing, once the run has gone on from there."""
    who = "whoever drives it claims it" if info.queue is None else "a worker takes it"
    return _DONE.get(word, {}).get(info.status, "").format(who=who)


class Head(Struct, frozen=True):
    """What stands on top of all pages of a run."""

    info: RunInfo
    standing: Standing
    etag: str
    ended: bool
    unread: str | None = None  # why its contents cannot be read

    @property
    def may_go_on(self) -> bool:
        """Whether to let it go on, if it is parked, may help."""
        return goes_on_when_let(self.info)


def head(ask: Ask) -> Head:
    """The head of the pages of the run that is asked for."""
    run = ask.run
    record, info = run.held.read_record(), run.info()
    unread = f"It is encrypted with key {record.key_id!r}, which this server does not have." if _locked(run) else None
    return Head(info, standing(ask.hf, info), etag_of(record), info.status in ENDED, unread)


def _locked(run: Run) -> bool:
    """Whether the run is encrypted, with a key that is not here."""
    try:
        run.entries(limit=1)
    except KeyMissing:
        return True
    except HoldfastError:  # whatever else is wrong with it, is told where it matters
        return False
    return False


class Window(Struct, frozen=True):
    """The part of a journal that the timeline shows."""

    chart: Chart | None
    lo: int
    hi: int
    seq: int
    now: tuple[Bar, ...] = ()  # what has not ended
    after: str = ""  # of a run that goes on, what it did last

    @property
    def whole(self) -> bool:
        return self.lo == 0 and self.hi == self.seq


def window(run: Run, top: Head, upto: int | None = None) -> Window:
    """The timeline of the newest entries, or of those up to one."""
    info = top.info
    goes_on = not top.ended and top.standing.look != "died"
    hi = info.seq if upto is None else min(upto, info.seq)
    lo = max(0, hi - WINDOW + 1)
    before = lo - 1
    entries = _between(run, before if before >= 0 else 0, hi, pending=upto is None)
    lives = {
        one.seq: one.live for one in run.history(limit=len(entries) or 1, after=str(before - 1) if before > 0 else None)
    }
    since = round(entries[0].at.timestamp() * SECOND) if before >= 0 and entries else None
    reel = Reel(by_hand=info.queue is None, since=since)
    for entry in entries[1:] if before >= 0 else entries:
        reel.add(entry, live=lives.get(entry.seq, True))
    now = time.time() if hi == info.seq and goes_on else _last(entries, info).timestamp()
    is_running = info.status is Status.RUNNING and goes_on
    bars = reel.finish(round(now * SECOND), running=is_running or hi < info.seq)
    goes_on = goes_on and hi == info.seq
    open_bars = tuple(bar for bar in bars if bar.status in ("started", "retrying", "waiting") and bar.live)
    after = bars[-1].name if bars and is_running and goes_on else ""
    return Window(chart(bars), lo, hi, info.seq, open_bars if goes_on else (), after)


def _last(entries: list[EntryContents], info: RunInfo) -> datetime:
    return entries[-1].at if entries else info.updated_at


def _between(run: Run, lo: int, hi: int, *, pending: bool) -> list[EntryContents]:
    """Entries with lo <= seq <= hi; and what was acknowledged, and its holder has not taken in yet."""
    found = run.entries(after=str(lo - 1) if lo else None, limit=hi - lo + 1 + (WINDOW if pending else 0))
    return [one for one in found if one.seq <= hi or (pending and one.pending)]


def newest_outputs(run: Run, info: RunInfo) -> list[Output]:
    """The newest notes and values that the run emitted, the newest first."""
    after = str(info.seq - _LOOKED_THROUGH) if info.seq >= _LOOKED_THROUGH else None
    found = list(run.outputs(after=after, limit=_LOOKED_THROUGH))
    codec = run.held.codec
    return [replace(one, value=codec.raw(codec.encode(one.value, "output"))) for one in found[::-1][:OUTPUTS]]


class Picture(Struct, frozen=True):
    """The graph of a run with the path that it took, as SVG; or what is missing to draw it."""

    svg: str | None = None
    missing: str = ""


def picture(run: Run) -> Picture:
    """The picture of a run; an empty one if it is of no graph."""
    try:
        found = drawn(run)
        return Picture(svg(*found, styled=False)) if found is not None else Picture()
    except ExtraMissing as error:
        return Picture(missing=str(error))


NOTHING_TOLD = dict.fromkeys(("input", "result", "error", "trace", "by", "failed_at"))


def outcome(run: Run, info: RunInfo) -> dict[str, Any]:
    """What a run began with and what came of it: input, result, error, traceback."""
    told: dict[str, Any] = {**NOTHING_TOLD, "input": given_to(run, info)}
    if info.status not in ENDED or info.seq == 0:
        return told
    last = run.entry(info.seq)
    if last.kind not in (Kind.COMPLETED, Kind.FAILED, Kind.CANCELLED):  # something was erased, or noted, after its end
        checkpoint = run.checkpoint()
        if info.status is Status.COMPLETED:
            return told | {"result": checkpoint.raw_result}
        return told | {"error": checkpoint.error, "failed_at": _named(checkpoint.failed_at)}
    said = last.contents
    if info.status is Status.COMPLETED:
        saved = said.get("saved")
        return told | {"result": run.checkpoint(saved).raw_state if saved is not None else said.get("result")}
    failure = said.get("failure") or {}
    told |= {"error": said.get("error"), "trace": failure.get("traceback"), "by": said.get("by")}
    return told | {"failed_at": _named(said.get("node"))}


def _named(node: str | None) -> str | None:
    """The call of a node that a run failed at, for people."""
    return task_name(node) if node is not None else None


def page(ask: Ask, forms: list[Form] | None = None, *, status: int = 200) -> Response:
    """How one run stands. ``forms`` are its questions, if they are shown with what is wrong with an answer."""
    run, top = ask.run, head(ask)
    info = top.info
    upto = ask.number("upto")
    context: dict[str, Any] = {"window": None, "picture": Picture(), "told": NOTHING_TOLD, "damage": None}
    context |= {name: [] for name in ("forms", "outputs", "uncertain", "untaken")}
    if top.unread is None:
        try:
            context["window"] = window(run, top, upto)
            if not top.ended:
                context["forms"] = forms if forms is not None else [form(one) for one in run.questions()]
                context["untaken"] = untaken_answers(run)
            if info.status is Status.BLOCKED:
                context["uncertain"] = [step for step in run.steps() if step.status == "uncertain"]
            context["outputs"] = newest_outputs(run, info)
            context["picture"] = picture(run)
            context["told"] = outcome(run, info)
        except (RunDamaged, Redacted) as damage:
            context["damage"] = str(damage)
    return ask.render("run.html", status=status, title=info.id, tab="", **frame(ask, top), **context)


def frame(ask: Ask, top: Head) -> dict[str, Any]:
    """What all pages of a run have in common."""
    tabs = [(name, run_url(top.info.id, *([part] if part else [])), part) for name, part in TABS]
    told = said(ask.one("said"), top.info)
    return {"top": top, "tabs": tabs, "said": told, "live": "run", "live_run": top.info.id}
