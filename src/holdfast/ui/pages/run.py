"""The page of one run: how it stands, what it asks, what it did and when, and what came of it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from holdfast.engine.run.handle import Run
from holdfast.errors import ExtraMissing, HoldfastError, KeyMissing, Redacted, RunDamaged
from holdfast.graph.draw.run_path import drawn
from holdfast.graph.draw.svg import svg
from holdfast.kernel.model import ENDED, Status
from holdfast.present.description import describe
from holdfast.present.remedies import Remedy, remedies_of
from holdfast.present.status import Standing, standing
from holdfast.ui.api.problems import without_place
from holdfast.ui.chart import chart
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.questions import Form, form
from holdfast.ui.pages.words import in_buttons
from holdfast.ui.shapes import etag_of
from holdfast.views import Output, RunInfo

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
    note: str
    etag: str
    ended: bool
    remedies: list[Remedy] = []
    unread: str | None = None  # why its contents cannot be read

    @property
    def acts(self) -> dict[str, Remedy]:
        """What helps, by the names of the acts."""
        return {one.act: one for one in reversed(self.remedies)}

    @property
    def uncertain(self) -> list[str]:
        """The keys of the steps of which somebody has to say what became of them."""
        return list(dict.fromkeys(one.key for one in self.remedies if one.act == "resolve" and one.key is not None))


def head(ask: Ask) -> Head:
    """The head of the pages of the run that is asked for."""
    run = ask.run
    record, info = run.held.read_record(), run.info()
    stands = standing(ask.hf, info)
    note = without_place(in_buttons(stands.told), ask.hf.place)
    if _locked(run):
        unread = f"It is encrypted with key {record.key_id!r}, which this server does not have."
        return Head(info, stands, note, etag_of(record), info.status in ENDED, unread=unread)
    try:
        found = remedies_of(run, info, died=stands.died)
    except HoldfastError:  # it is damaged, and its page says so
        found = []
    return Head(info, stands, note, etag_of(record), info.status in ENDED, found)


def _locked(run: Run) -> bool:
    """Whether the run is encrypted, with a key that is not here."""
    try:
        run.entries(limit=1)
    except KeyMissing:
        return True
    except HoldfastError:  # whatever else is wrong with it, is told where it matters
        return False
    return False


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


def page(ask: Ask, forms: list[Form] | None = None, *, status: int = 200) -> Response:
    """How one run stands. ``forms`` are its questions, if they are shown with what is wrong with an answer."""
    run, top = ask.run, head(ask)
    context: dict[str, Any] = {"found": None, "chart": None, "picture": Picture(), "damage": None}
    context |= {"forms": [], "outputs": []}
    if top.unread is None:
        try:
            found = describe(ask.hf, run, upto=ask.number("upto"), stands=top.standing)
            context["found"], context["chart"] = found, chart(found.window.bars)
            context["forms"] = forms if forms is not None else [form(one) for one in found.questions]
            context["outputs"] = newest_outputs(run, top.info)
            context["picture"] = picture(run)
        except (RunDamaged, Redacted) as damage:
            context["damage"] = str(damage)
    return ask.render("run.html", status=status, title=top.info.id, tab="", **frame(ask, top), **context)


def frame(ask: Ask, top: Head) -> dict[str, Any]:
    """What all pages of a run have in common."""
    tabs = [(name, run_url(top.info.id, *([part] if part else [])), part) for name, part in TABS]
    told = said(ask.one("said"), top.info)
    return {"top": top, "tabs": tabs, "said": told, "live": "run", "live_run": top.info.id}
