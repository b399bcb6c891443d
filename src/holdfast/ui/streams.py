"""Event streams: the marks of what changes, and the entries of one run as they are written."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.engine.run.handle import Run
from holdfast.errors import RunNotFound
from holdfast.kernel.model import ENDED
from holdfast.ui import shapes
from holdfast.ui.api.calls import Call
from holdfast.ui.live import Event
from holdfast.ui.site import Site

CHUNK = 200  # entries that are read at a time


async def watch(site: Site, call: Call[shapes.EventQuery, None]) -> AsyncIterator[Event]:
    """Be told when runs change.

    Events: `run`, how one of the runs stands, at first and then whenever that changes; with `store`, or if no run is
    named, `store`, whenever anything changed at all.
    """
    runs = call.query.run
    site.live.check(runs)
    return _marks(site, runs, call.query.store or not runs)


async def _marks(site: Site, runs: list[str], store: bool) -> AsyncIterator[Event]:
    with site.live.open(runs, store=store) as stream:
        async for event in stream:
            yield event


async def follow_run(site: Site, call: Call[shapes.EntriesQuery, None]) -> AsyncIterator[Event]:
    """Follow the entries of a run until it has ended.

    Events: `entry`, each of its entries without the contents; then `end`.
    """
    run = await site.call(lambda: call.run)
    site.live.check([run.id])
    return _entries(site, run, call.query.after)


async def _entries(site: Site, run: Run, after: int | None) -> AsyncIterator[Event]:
    last = None if after is None else str(after)
    with site.live.open([run.id]) as stream:
        async for _ in stream:
            try:
                info = await site.call(run.info)
                while True:
                    page = await site.call(run.history, limit=CHUNK, after=last)
                    for entry in page:
                        yield Event("entry", msgspec.json.encode(entry).decode())
                        last = str(entry.seq)
                    if len(page) < CHUNK:
                        break
            except RunNotFound:  # it was deleted meanwhile
                yield Event("end", '{"status":null}')
                return
            if info.status in ENDED:
                yield Event("end", msgspec.json.encode({"status": info.status}).decode())
                return
