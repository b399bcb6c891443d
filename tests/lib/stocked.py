"""A store that has something of every kind, and everything that can be asked of it and done to it.

`stock` fills it; `ask` gives the public answers of a store, each by a name, in a form that can be compared; `attempts`
are the public calls that write. Each of them gives what it should, or a `HoldfastError`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from holdfast import Holdfast, step, workflow
from holdfast import ask as ask_person
from holdfast.errors import HoldfastError, TimedOut
from holdfast.kernel.model import EndMove, Filter, Item, Limits, Order, Post, Status
from holdfast.kernel.rules import ANY
from holdfast.stores.protocol import write_one

EXECUTED: list[str] = []  # every step that was executed, in this process


@step
def note(text: str) -> str:
    EXECUTED.append(text)
    return f"noted {text}"


@workflow
def talk(topic: str) -> str:
    first = note(f"{topic} 1")
    again = ask_person("Again?", bool)
    return f"{first}, {note(f'{topic} 2') if again else 'enough'}"


@workflow
def deliver(what: str) -> str:
    return note(what)


IDS = (
    "victim",
    "other",
    "fork",
    "grandchild",
    "answered",
    "open",
    "done",
    "queued-0",
    "queued-1",
    "queued-2",
    "later",
    "left",
)
WORKFLOWS = frozenset({talk.name, deliver.name})


def stock(open_store: Callable[[], Holdfast]) -> None:
    """Fill a new store. What is written by whom is spread over two handles, as in life."""
    with open_store() as hf:
        run = hf.run("victim", tags={"team": "red", "size": "big"})
        run.save({"step": 1, "text": "one"})
        with run.claim():
            run.once("note", note, "this", target="paper")
            run.save({"step": 2, "text": "one two"})
        run.mark("seen", "eye")
        hf.run("other", tags={"team": "red"}).save({"mine": "all mine"})
        hf.get("victim").fork(id="fork").save({"step": 3})
        hf.get("fork").fork(id="grandchild").save({"step": 4})
        for id in ("answered", "open"):
            with suppress(TimedOut):
                hf.start(talk, id, id=id).result(timeout=0)
        done = hf.start(talk, "done", id="done")
        with suppress(TimedOut):
            done.result(timeout=0)
        done.answer(True)
        done.result(timeout=60)
        hf.queue("post", limit=2, per_key=1)
        hf.queue("bulk", paused=True)
        hf.schedule(deliver, "news", cron="0 4 * * *", id="nightly", queue="post")
        hf.schedule(deliver, "more news", cron="0 5 * * *", id="nightly-2", queue="post")
        for n in range(3):
            hf.enqueue(deliver, f"parcel {n}", id=f"queued-{n}", queue="post", key=f"street {n}", tags={"team": "blue"})
        hf.enqueue(deliver, "later", id="later", queue="post", delay=3_600_000)
    with open_store() as hf:
        hf.get("answered").answer(True)
        hf.get("open").send({"hello": 1}, topic="greetings")
    hf = open_store()
    left = hf.enqueue(deliver, "left", id="left", queue="post")
    hf.client.store.beat("ghost", 3600)
    hf.client.store.claim(left.uid, "ghost")
    hf.client.store.drop()  # as if it were killed


def uids(hf: Holdfast) -> dict[str, str]:
    return {id: hf.get(id).uid for id in IDS}


# --- what can be asked


def questions(hf: Holdfast, known: dict[str, str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Public questions, and those of the store's own protocol, by name. ``known`` are the uids of the runs."""
    store = hf.client.store
    for id, uid in known.items():
        yield f"get {id}", lambda id=id: hf.get(id).info()
        yield f"checkpoint {id}", lambda id=id: _checkpoint(hf, id)
        yield f"history {id}", lambda id=id: [(entry.seq, entry.kind) for entry in hf.get(id).history()]
        yield f"effects {id}", lambda id=id: [(one.key, one.target, one.status) for one in hf.get(id).effects()]
        yield f"questions {id}", lambda id=id: [one.prompt for one in hf.get(id).questions()]
        yield f"audit {id}", lambda id=id: hf.get(id).audit().head
        yield f"journal {id}", lambda uid=uid: store.get(uid=uid)
        yield f"read {id}", lambda uid=uid: store.read(uid, 0, 99)
        yield f"read saved {id}", lambda uid=uid: [entry.seq for entry in store.read(uid, 0, 99, saved=True)]
        yield f"inbox {id}", lambda uid=uid: store.inbox(uid)
        yield f"taken {id}", lambda uid=uid: [one.key for one in store.inbox(uid, taken=True)]
        yield f"forks {id}", lambda uid=uid: [record.id for record in store.find(Filter(shares=uid))]
    yield "runs", lambda: [info.id for info in hf.runs()]
    for status in Status:
        yield f"runs {status}", lambda status=status: [info.id for info in hf.runs(status=status)]
    yield "runs by tag", lambda: [info.id for info in hf.runs(tags={"team": "red"})]
    yield "runs by two tags", lambda: [info.id for info in hf.runs(tags={"team": "red", "size": "big"})]
    yield "runs by prefix", lambda: [info.id for info in hf.runs(prefix="queued")]
    yield "runs by workflow", lambda: [info.id for info in hf.runs(workflow=deliver.name)]
    yield "all runs", lambda: [record.id for record in store.find(Filter(hidden=None), limit=99)]
    yield "queues", lambda: [(one.name, one.limit, one.paused, one.ready, one.waiting) for one in hf.queues()]
    yield "schedules", lambda: [(one.id, one.cron) for one in hf.schedules()]
    yield "schedule", lambda: hf.get_schedule("nightly").info().cron
    yield "recover", lambda: hf.recover(dry_run=True)
    yield "counts", lambda: store.counts(99)
    yield "due", lambda: [record.id for record in store.look(["post"], WORKFLOWS).due]
    yield "orphans", lambda: [record.id for record in store.find(Filter(orphaned=True))]
    yield "backlog", store.backlog
    yield "next wake", lambda: store.look(["post"], WORKFLOWS, limit=0).wake
    yield "workers", lambda: [one.worker for one in store.workers()]
    yield "documents", lambda: [one.name for one in store.documents("queue")]


def _checkpoint(hf: Holdfast, id: str) -> tuple[Any, ...]:
    point = hf.get(id).checkpoint()
    return point.seq, point.state, point.completed, point.results


# --- what can be done


def attempts(hf: Holdfast, known: dict[str, str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls that write, public ones and those of the store's own protocol, by name; deletions come last."""
    store = hf.client.store
    yield "save", lambda: hf.get("victim").save({"new": True})
    yield "once", lambda: hf.get("victim").once("new", str, "text")
    yield "mark", lambda: hf.get("victim").mark("new mark", "eye")
    yield "fork", lambda: hf.get("victim").fork(id="new fork")
    yield "fork of the fork", lambda: hf.get("grandchild").fork(at=2, id="another fork")
    yield "answer", lambda: hf.get("open").answer(True)
    yield "answer again", lambda: hf.get("answered").answer(False)
    yield "send", lambda: hf.get("open").send(1, topic="greetings")
    yield "start again", lambda: hf.start(talk, "answered", id="answered").result(timeout=0)
    yield "start new", lambda: hf.start(deliver, "new", id="new run").result(timeout=0)
    yield "enqueue", lambda: hf.enqueue(deliver, "parcel 0", id="queued-0", queue="post", key="street 0")
    yield "queue", lambda: hf.queue("post", limit=3)
    yield "schedule", lambda: hf.schedule(deliver, "news", cron="0 4 * * *", id="nightly", queue="post")
    yield "pause", lambda: hf.get_schedule("nightly").pause()
    yield "first beat", lambda: store.beat("tester", 60)
    for id, uid in known.items():
        yield f"post {id}", lambda uid=uid: write_one(store, Post(uid, Item("key", "message", 1, b"{}", False)))
        yield f"claim {id}", lambda uid=uid: store.claim(uid, "tester", ANY)
        yield f"settle {id}", lambda uid=uid: write_one(store, EndMove(uid, epoch=1, here=Status.READY, mail=()))
    limits = Limits(total=9, per_worker=9, per_lane=9)
    yield "take", lambda: store.take(Order(worker="tester", queues={"post": limits}, workflows=WORKFLOWS, limit=9))
    yield "put document", lambda: store.put_document("queue", "post", b"{}", None)
    yield "beat", lambda: store.beat("tester", 60)
    yield "retire", lambda: store.beat("tester", 0)
    yield "recover", hf.recover
    yield "rollback", lambda: hf.get("victim").rollback(to=1)
    yield "cancel", lambda: hf.get("open").cancel()
    yield "redact", lambda: hf.get("victim").redact()
    yield "delete many", lambda: store.delete([record for uid in known.values() if (record := store.get(uid=uid))])
    for id in ("grandchild", "fork", "victim", "done"):
        yield f"delete {id}", lambda id=id: hf.get(id).delete()


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    """What a call gave: ("value", it), ("error", a `HoldfastError`) or ("bare", any other error)."""
    try:
        return "value", call()
    except HoldfastError as error:
        return "error", error
    except Exception as error:
        return "bare", error


def executed_again() -> list[str]:
    """Steps that were executed although their results were stored, or executed twice in this process."""
    return sorted({text for text in EXECUTED if text.endswith(" 1") or EXECUTED.count(text) > 1})


def answers(hf: Holdfast, known: dict[str, str]) -> dict[str, Any]:
    """All answers of a sound store."""
    return {name: question() for name, question in questions(hf, known)}
