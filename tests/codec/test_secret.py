"""A secret can be used, and its value is never written or shown."""

from __future__ import annotations

import copy
import gc
import io
import json
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Secret, UsageError
from holdfast.codec import Codec, pack, unpack
from holdfast.errors import SecretMissing

VALUE = "hunter2-and-more"


@dataclass
class Settings:
    key: Secret
    size: int = 1


def in_another_process(tree: Any) -> Any:
    """The stored form, with a token that this process has not made."""
    return json.loads(json.dumps(tree).replace(tree["t"], "0" * 32))


def test_the_value_is_never_shown() -> None:
    secret = Secret(VALUE, "API_KEY")
    log = io.StringIO()
    logger = logging.Logger("secrets")
    logger.addHandler(logging.StreamHandler(log))
    logger.error("using %s %r", secret, {"key": secret})
    texts = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        f"{secret!r}",
        repr([Settings(secret)]),
    ]
    texts += [json.dumps(secret, default=str), log.getvalue(), repr(dir(secret)), repr(copy.deepcopy([secret]))]
    assert all("hunter" not in text for text in texts)
    assert repr(secret) == "<Secret 'API_KEY'>"
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_pickling_is_refused_and_a_copy_is_itself() -> None:
    secret = Secret(VALUE, "API_KEY")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(UsageError, match="'API_KEY' cannot be pickled"):
            pickle.dumps(secret, protocol)
    with pytest.raises(UsageError):
        secret.__getstate__()
    assert copy.copy(secret) is copy.deepcopy(secret) is secret
    assert asdict(Settings(secret))["key"] is secret


def test_equality_is_identity() -> None:
    one, other = Secret(VALUE), Secret(VALUE)
    assert one != other
    assert one != VALUE
    assert len({one, other, one}) == 2


def test_wrong_usage_does_not_show_the_value() -> None:
    with pytest.raises(UsageError, match="text or bytes, not int") as caught:
        Secret(8_675_309)  # type: ignore[arg-type]
    assert "8675309" not in str(caught.value)
    with pytest.raises(UsageError, match="the name of a secret"):
        Secret(VALUE, "")
    with pytest.raises(UsageError, match="cannot be subclassed"):
        type("Mine", (Secret,), {})
    with pytest.raises(UsageError, match="secrets= is a mapping by name"):
        Codec(secrets=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="stored by Holdfast itself"):
        Codec().register(Secret, encode=str, decode=str)


# --- stored and read


@pytest.mark.parametrize("value", [VALUE, b"\x00\xff\xfe", "", "é€"])
def test_the_same_process_reads_it_back(codec: Codec, value: Any) -> None:
    secret = Secret(value, "API_KEY")
    tree = unpack(pack(codec.encode({"a": [Settings(secret)]})))
    back = codec.decode(tree)["a"][0].key
    assert back is secret
    assert back.reveal() == value
    assert Codec().decode(codec.encode(secret)) is secret


def test_what_is_stored(codec: Codec) -> None:
    one, other = codec.encode(Secret(VALUE)), codec.encode(Secret(VALUE))
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    assert one == {"$": "secret", "n": "secret", "t": one["t"]}
    assert len(str(one["t"])) == 32
    assert one["t"] != other["t"]
    assert codec.raw({"a": one}) == {"a": {"secret": "secret"}}
    assert codec.encode(Secret.from_env("API_KEY"))["e"] == 1  # type: ignore[call-overload,index]


def test_the_codec_keeps_it_alive(codec: Codec) -> None:
    tree = codec.encode(Secret(VALUE))
    gc.collect()
    assert codec.decode(tree).reveal() == VALUE
    codec.secrets.clear()
    gc.collect()
    with pytest.raises(SecretMissing):
        codec.decode(tree).reveal()


def test_another_process_looks_it_up_when_it_is_revealed(codec: Codec) -> None:
    tree = in_another_process(codec.encode(Secret(VALUE, "API_KEY")))
    asked: list[str] = []

    def vault(name: str) -> str | None:
        asked.append(name)
        return "from the vault"

    back = Codec(secrets=vault).decode(tree)
    assert asked == []
    assert [back.reveal(), back.reveal()] == ["from the vault"] * 2
    assert asked == ["API_KEY"]
    assert Codec(secrets={"API_KEY": b"mapped"}).decode(tree).reveal() == b"mapped"
    assert codec.encode(back) == tree


def raising(error: Exception) -> Any:
    def lookup(name: str) -> str:
        raise error

    return lookup


@pytest.mark.parametrize("secrets", [None, {}, {"OTHER": "x"}, lambda name: None, lambda name: 3, raising(KeyError())])
def test_a_secret_that_is_missing(codec: Codec, secrets: Any) -> None:
    tree = in_another_process(codec.encode(Secret(VALUE, "API_KEY")))
    back = Codec(secrets=secrets).decode([tree])[0]
    assert repr(back) == "<Secret 'API_KEY'>"
    with pytest.raises(SecretMissing, match=r"secret 'API_KEY': .*; give it: holdfast.open\(..., secrets=\{'API_KEY'"):
        back.reveal()


def test_a_vault_that_fails_is_not_a_missing_secret(codec: Codec) -> None:
    tree = in_another_process(codec.encode(Secret(VALUE, "API_KEY")))
    with pytest.raises(ConnectionError):
        Codec(secrets=raising(ConnectionError())).decode(tree).reveal()


def test_from_the_environment(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TEST_KEY", raising=False)
    secret = Secret.from_env("HF_TEST_KEY")
    with pytest.raises(SecretMissing, match=r"'HF_TEST_KEY': .* set this environment variable"):
        secret.reveal()
    tree = in_another_process(codec.encode(secret))
    monkeypatch.setenv("HF_TEST_KEY", VALUE)
    assert secret.reveal() == VALUE
    assert Codec(secrets={"HF_TEST_KEY": "not this"}).decode(tree).reveal() == VALUE


@pytest.mark.parametrize(
    "tag", [{}, {"n": "a"}, {"n": 1, "t": "a"}, {"n": "a", "t": 1}, {"n": "", "t": "a"}, {"n": "a", "t": []}]
)
def test_damaged_secrets(codec: Codec, tag: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the stored secret is damaged"):
        codec.decode({"$": "secret", **tag})


def test_the_digest_sees_only_the_name(codec: Codec) -> None:
    def of(value: Any) -> str:
        return codec.digest(codec.encode(value))

    def a() -> Secret:
        return Secret(VALUE, "A")

    assert of(a()) == of(a()) == of(Secret("other", "A")) == of(Secret.from_env("A"))
    assert of(a()) != of(Secret(VALUE, "B"))
    for wrap in (lambda s: [s], lambda s: {"$": s}, lambda s: {(1, s): s, 2: 3}, lambda s: {s, 1}, Settings):
        assert of(wrap(a())) == of(wrap(a()))  # type: ignore[no-untyped-call]
    b = Secret(VALUE, "B")
    assert of({a(), b, a()}) == of({b, a(), a()})
    plain = {"$": "secret", "n": "A", "t": "1"}
    assert of(plain) != of({**plain, "t": "2"})


# --- scrubbing


def test_scrub(codec: Codec) -> None:
    kept = [Secret(VALUE), Secret("hunter2-and-more-2"), Secret("abc"), Secret(b"\x00bin\xff"), Secret("it's a/ключ\n")]
    assert codec.scrub(f"<{VALUE}> <{VALUE}-2> abc") == "<***> <***> abc"
    assert codec.scrub(repr(kept[3].reveal())) == "b'***'"
    text = kept[4].reveal()
    from urllib.parse import quote

    assert codec.scrub(f"{text} {text!r} {text!a} {quote(text, safe='')}") == '*** "***" "***" ***'
    assert codec.scrub("nothing here") == "nothing here"


def test_scrub_knows_what_was_read(codec: Codec) -> None:
    tree = in_another_process(codec.encode(Secret("first-process", "API_KEY")))
    reader = Codec(secrets={"API_KEY": "second-process"})
    reader.decode(tree).reveal()
    assert reader.scrub("second-process") == "***"
    assert codec.scrub("second-process") == "second-process"


def test_scrub_of_a_tree(codec: Codec) -> None:
    secret = Secret(VALUE)
    value = [VALUE, {VALUE: 1, "$": VALUE}, (VALUE,), {1: VALUE}, bytearray(VALUE.encode()), secret, 5, {VALUE}]
    tree = codec.encode_scrubbed([*value, Settings(secret)])
    back = codec.decode(tree)
    assert back == [
        "***",
        {"***": 1, "$": "***"},
        ("***",),
        {1: "***"},
        bytearray(b"***"),
        secret,
        5,
        {"***"},
        Settings(secret),
    ]


# --- in a store


def test_nothing_in_the_store(hf: Holdfast, raw_bytes: Callable[[], bytes]) -> None:
    secret, blob = Secret(VALUE, "API_KEY"), Secret(b"\x01binary-hunter", "BLOB")
    run = hf.run("r", definition={"key": secret})
    run.save({"key": secret, "more": [Settings(secret)], "blob": blob})
    run.save({"key": secret, "more": [Settings(secret), 2], "blob": blob})
    assert run.once("call", lambda key: len(key.reveal()), secret) == len(VALUE)
    assert run.once("call", lambda key: 1 / 0, Secret(VALUE, "API_KEY")) == len(VALUE)
    assert run.checkpoint().state["key"].reveal() == VALUE
    hf.run("r", definition={"key": Secret("new value", "API_KEY")})
    stored = raw_bytes()
    assert b"API_KEY" in stored
    for spelling in (b"hunter", VALUE.encode().hex().encode(), b"aHVudGVyMi", b"AWJpbmFyeS"):
        assert spelling not in stored


def test_nothing_in_a_traceback() -> None:
    secret = Secret(VALUE, "API_KEY")
    try:
        raise ValueError(secret)
    except ValueError as error:
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "<Secret 'API_KEY'>" in shown
    assert VALUE not in shown


def test_a_real_other_process(memdir: Any) -> None:
    url = f"sqlite:///{memdir}/runs.db"
    with holdfast.open(url) as hf:
        hf.run("r").save({"key": Secret(VALUE, "API_KEY"), "env": Secret.from_env("HF_TEST_KEY")})
    code = f"""
import holdfast
with holdfast.open({url!r}) as hf:
    state = hf.get("r").checkpoint().state
    print(state["env"].reveal())
    try:
        state["key"].reveal()
    except holdfast.errors.SecretMissing as error:
        print(error.name)
"""
    env = {"PYTHONPATH": ":".join(sys.path), "HF_TEST_KEY": "from env"}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True)
    assert done.stdout.split("\n") == ["from env", "API_KEY", ""]


def test_a_run_that_is_failed_by_hand_keeps_no_secret() -> None:
    with holdfast.open("memory://") as hf:
        token = Secret("hunter2-hunter2")
        run = hf.run("a")
        run.save({"token": token})
        run.fail(PermissionError(f"{token.reveal()} was refused"))
        assert run.checkpoint().error == "PermissionError: *** was refused"
