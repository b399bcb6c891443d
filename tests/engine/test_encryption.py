"""With a keyring, nothing that a user put in can be read in the store."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Keyring, Run, Status
from holdfast.errors import KeyMissing, Redacted, RunDamaged, UsageError
from holdfast.kernel.journal import next_entry
from holdfast.kernel.model import Adopt, Rewrap
from holdfast.stores.protocol import write_one

OLD, NEW = b"1" * 32, b"2" * 32
WORDS = (
    *("state", "target", "prompt", "option", "answer", "error", "resultkey", "toolarg", "kwarg", "fieldname", "label"),
    *("default", "nextnode", "queueitem", "variable", "nodename", "markkey", "marktool", "marktarget", "markresult"),
    *("inboxmark", "inboxtool", "answerer", "resolver", "finalresult", "outputkey", "eraser", "whyerased", "failure"),
    *("definition",),  # which is kept as a digest
)
WORD = {name: f"zq{name}qz" for name in WORDS}  # nothing else in a store looks like this


def keys(**known: bytes) -> Keyring:
    return Keyring(known, current=list(known)[-1])


@pytest.fixture
def sealed(opened: Callable[..., Holdfast]) -> Holdfast:
    return opened(keys=keys(old=OLD))


def zqtoolqz(argument: str, **more: str) -> str:
    return WORD["resultkey"] + argument


def zqundoqz(result: Any, argument: str, **more: str) -> None:
    """An undo."""


def fail(text: str) -> None:
    raise ValueError(WORD["error"])


def fill(hf: Holdfast) -> Run:
    """A run in which every kind of entry and item holds words of the user's."""
    run = hf.run("run", workflow="visible workflow", definition=WORD["definition"], tags={"visible": "tag"})
    with run.claim():
        run.save(
            {"s": WORD["state"]},
            next=WORD["nextnode"],
            node=WORD["nodename"],
            queue=[WORD["queueitem"]],
            variables={WORD["variable"]: 1},
        )
        run.save({"s": WORD["state"], "t": [WORD["state"]] * 3})
        start = run.info().seq
        run.once(WORD["resultkey"], zqtoolqz, WORD["toolarg"], k=WORD["kwarg"], target=WORD["target"], undo=zqundoqz)
        run.once("plain" + WORD["resultkey"], zqtoolqz, WORD["toolarg"])
        with pytest.raises(ValueError, match="zq"):
            run.once("failing", fail, WORD["toolarg"], target=WORD["target"])
        with pytest.raises(KeyboardInterrupt):
            run.once("uncertain", _break, at_most_once=True)
        run.resolve("uncertain", done=True, result=WORD["resultkey"], by=WORD["resolver"])
        run.mark(WORD["markkey"], WORD["marktool"], WORD["marktarget"], result=WORD["markresult"])
        run.rollback(to=start)
        field = {"name": WORD["fieldname"], "options": (WORD["option"],), "label": WORD["label"]}
        run.pause(WORD["prompt"], [field, {"name": "d", "default": WORD["default"]}], output_key=WORD["outputkey"])
    run.answer({WORD["fieldname"]: WORD["option"]}, by=WORD["answerer"])
    with run.claim():
        run.pause("second " + WORD["prompt"])
    run.answer(WORD["answer"], by=WORD["answerer"])  # stays in the inbox
    run.mark(WORD["inboxmark"], WORD["inboxtool"], WORD["marktarget"], result=WORD["markresult"])
    run.fork(id="fork").save(WORD["state"])
    done = hf.run("done")
    done.save(WORD["state"])
    done.redact(1, by=WORD["eraser"], why=WORD["whyerased"])
    done.complete(WORD["finalresult"])
    hf.run("failed").fail(WORD["failure"])
    return run


def _break() -> None:
    raise KeyboardInterrupt


def test_nothing_that_a_user_put_in_can_be_read(sealed: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    fill(sealed)
    raw = raw_bytes()
    for visible in (b"visible workflow", b"visible", b"run", b"fork"):
        assert visible in raw
    hidden = (*WORD.values(), "zqtoolqz", "zqundoqz")
    assert [word for word in hidden if word.encode() in raw] == []
    sealed.close()
    assert [word for word in hidden if word.encode() in raw_bytes()] == []


def test_the_same_words_are_found_without_a_keyring(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    """So that the test above would notice."""
    fill(hf)
    raw = raw_bytes()
    assert [name for name, word in WORD.items() if word.encode() not in raw] == ["definition"]


def test_digests_of_what_a_user_put_in_are_not_visible(
    sealed: Holdfast, opened: Callable[..., Holdfast], raw_bytes: Callable[..., bytes]
) -> None:
    """A digest in the clear would let anybody check a guess."""
    from hashlib import blake2b, sha256

    run = sealed.run("run", definition="v1")
    run.mark("guessable", "tool")
    run.once("step", len, "guessable argument")
    codec = sealed.client.codec
    raw = raw_bytes()
    for digest in (
        codec.digest(["len", [codec.encode("guessable argument")], {}]),
        codec.digest(codec.encode("v1")),
        blake2b(b"guessable", digest_size=16).hexdigest(),
        sha256(b"guessable").hexdigest(),
    ):
        assert digest.encode() not in raw


def test_everything_can_be_read_with_the_key(sealed: Holdfast, opened: Callable[..., Holdfast]) -> None:
    fill(sealed)
    again = opened(keys=keys(old=OLD)).run("run", workflow="visible workflow", definition=WORD["definition"])
    with again.claim():
        checkpoint = again.checkpoint()
        assert checkpoint.state == {"s": WORD["state"], "t": [WORD["state"]] * 3}
        assert checkpoint.answers[WORD["outputkey"]] == {WORD["fieldname"]: WORD["option"], "d": WORD["default"]}
        assert checkpoint.answers["answer"] == WORD["answer"]
        assert again.is_completed(WORD["inboxmark"])
    again.audit()
    fork = opened(keys=keys(old=OLD)).get("fork")
    assert fork.checkpoint().state == WORD["state"]
    assert fork.checkpoint(1).next == WORD["nextnode"]
    fork.audit()


@pytest.mark.parametrize("wrong", [None, keys(other=NEW), keys(old=NEW)], ids=["none", "another id", "another key"])
def test_without_the_key_nothing_can_be_read_or_changed(
    sealed: Holdfast, opened: Callable[..., Holdfast], wrong: Keyring | None
) -> None:
    run = sealed.run("run")
    run.save("secret")
    run.pause("?")
    other = sealed.run("done")
    other.complete("secret")
    seqs = [run.info().seq, other.info().seq]
    blind = opened(keys=wrong)
    locked = blind.get("run")
    for call in (
        locked.checkpoint,
        locked.claim,
        locked.effects,
        locked.questions,
        lambda: locked.answer("x"),
        lambda: locked.save("x"),
        lambda: locked.mark("a", "b"),
        lambda: locked.rollback(to=1),
        lambda: locked.redact(1),
        lambda: blind.get("done").rollback(to=0),
        lambda: blind.get("done").redact(1),
    ):
        with pytest.raises(KeyMissing):
            call()
    assert [info.id for info in blind.runs()] == ["done", "run"]  # what is in the clear can be listed
    assert len(locked.history()) == 3
    assert run.status is Status.WAITING  # and nothing has changed
    assert other.status is Status.COMPLETED
    assert [run.info().seq, other.info().seq] == seqs
    assert blind.recover() == ()


def test_a_dead_holders_run_is_left_alone_without_its_key(
    sealed: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    sealed.run("run").claim()
    kill(sealed)
    blind = opened()
    blind.run("plain").claim()
    with suppress(KeyMissing):
        assert "run" not in blind.recover()
    with opened(keys=keys(old=OLD)).get("run").claim() as holding:
        assert holding.epoch >= 2


def test_encrypted_and_plain_runs_live_side_by_side(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    hf.run("plain").save("before")
    sealed = opened(keys=keys(old=OLD))
    sealed.run("sealed").save("secret")
    sealed.get("plain").save("after")
    assert hf.get("plain").checkpoint().state == "after"
    with pytest.raises(KeyMissing, match=r"open the store with keys="):
        hf.get("sealed").checkpoint()


def test_keys_are_rotated_without_touching_an_entry(
    sealed: Holdfast, opened: Callable[..., Holdfast], store_url: str
) -> None:
    run = fill(sealed)
    hidden = sealed.run("parent")
    hidden.save("shared")
    child = hidden.fork(id="child")
    hidden.delete()
    entries = sealed.client.store.read(run.uid, 0, 1000)
    both = opened(keys=keys(old=OLD, new=NEW))
    assert both.get("run").checkpoint(1).next == WORD["nextnode"]
    rotated = both.rotate_keys()
    assert rotated == len(both.runs()) + 1  # the hidden one too
    assert both.rotate_keys() == 0
    assert sealed.client.store.read(run.uid, 0, 1000) == entries
    only_new = opened(keys=keys(new=NEW))
    assert only_new.get("run").checkpoint(1).next == WORD["nextnode"]
    assert only_new.get(child.id).checkpoint().state == "shared"
    only_new.get("run").audit()
    only_new.get("fork").save("goes on")
    with pytest.raises(KeyMissing):
        opened(keys=keys(old=OLD)).get("run").checkpoint()


def test_rotation_needs_keys(hf: Holdfast, opened: Callable[..., Holdfast], sealed: Holdfast) -> None:
    with pytest.raises(UsageError, match="keys="):
        hf.rotate_keys()
    hf.run("plain")
    assert sealed.rotate_keys() == 0
    sealed.run("sealed")
    with pytest.raises(KeyMissing):
        opened(keys=keys(new=NEW)).rotate_keys()


def test_entries_of_two_runs_cannot_be_exchanged(sealed: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """A sealed payload opens only in its place, even where somebody made the chain fit."""
    a, b = sealed.run("a"), sealed.run("b")
    a.save("of a")
    b.save("of b")
    [theirs], [first, mine] = sealed.client.store.read(a.uid, 1, 1), sealed.client.store.read(b.uid, 0, 1)
    forged = next_entry(mine.prev, 1, mine.kind, mine.at, mine.state, theirs.payload)
    other = opened("memory://", keys=keys(old=OLD))
    write_one(other.client.store, Adopt(replace(b.held.read_record(), hash=forged.hash), [first, forged]))
    with pytest.raises(RunDamaged, match="does not open"):
        other.get("b").checkpoint()


def test_the_wrapped_key_is_bound_to_its_run(sealed: Holdfast, opened: Callable[..., Holdfast]) -> None:
    a, b = sealed.run("a"), sealed.run("b")
    a.save("of a")
    b.save("of b")
    ours, theirs = b.held.read_record().key_blob, a.held.read_record().key_blob
    assert write_one(sealed.client.store, Rewrap(b.uid, ours, "old", theirs)) is True
    with pytest.raises(KeyMissing, match="does not open"):
        opened(keys=keys(old=OLD)).get("b").checkpoint()


def test_redaction_of_an_encrypted_run(sealed: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = sealed.run("run")
    run.once("step", str.upper, "secret")
    run.save({"a": 1})
    run.redact(1, by="operator")
    again = opened(keys=keys(old=OLD)).get("run")
    assert again.is_completed("step")
    with pytest.raises(Redacted):
        again.once("step", str.upper, "secret")
    assert again.audit().redacted == (1,)
    assert again.checkpoint().state == {"a": 1}


@pytest.mark.parametrize("bad", [{}, {"k": b"short"}, {"": OLD}, {"k": "text" * 8}])
def test_a_keyring_is_checked(bad: Any) -> None:
    with pytest.raises(UsageError):
        Keyring(bad, current="k")
    with pytest.raises(UsageError):
        Keyring({"k": OLD}, current="other")


def test_keys_are_not_shown() -> None:
    assert "1111" not in repr(keys(old=OLD))
