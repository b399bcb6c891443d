"""Secrets appear in no journal, log, view or error, however their values are cut, and only their names are stored."""

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, flow
from holdfast.errors import FlowFailed, SecretMissing
from holdfast.flow import Line
from holdfast.flow.actions.secrets import Masker, Source, Vault

VALUE = "hunter2-pässword'\"x"
FLOW = """
name: secretive
secrets:
  TOKEN:
  OTHER: {env: OTHER_NAME}
  KEY: {file: key.txt}
steps:
  - id: say
    env: {E: '{{ secrets.TOKEN }}'}
    run: |
      printf '%s\\n' {{ secrets.TOKEN | quote }} "$E" >&2
      echo {{ secrets.KEY | quote }}; cat key.txt; printf %.5s "$E"
      sleep 0.05
      printf '%s\\n' "${E#?????}"
      env
    undo: 'echo undo {{ secrets.TOKEN | quote }}; echo {{ secrets.OTHER | quote }} >> undone'
  - {id: call, call: 'flow_calls:length', with: {token: '{{ secrets.TOKEN }}'}}
  - id: leak
    call: 'flow_calls:leak'
    with: {token: '{{ secrets.OTHER }}'}
    on_failure: skip
  - {id: fail, run: 'echo {{ secrets.TOKEN | quote }} >&2; exit 3', on_failure: rollback}
"""


@pytest.fixture
def secretive(memdir: Path, monkeypatch: pytest.MonkeyPatch) -> flow.Flow:
    monkeypatch.setenv("TOKEN", VALUE)
    monkeypatch.setenv("OTHER_NAME", "0ther-value")
    (memdir / "key.txt").write_text("first-line-of-key\nsecond-line-of-key\n")
    (memdir / "secret.yaml").write_text(FLOW)
    return flow.load(memdir / "secret.yaml")


def test_no_value_is_stored_logged_or_shown(
    secretive: flow.Flow,
    hf: Holdfast,
    raw_bytes: Callable[..., bytes],
    caplog: pytest.LogCaptureFixture,
    memdir: Path,
) -> None:
    lines: list[Line] = []
    with caplog.at_level(logging.DEBUG), flow.listening(lines.append):
        run = secretive.start(hf, id="r")
        with pytest.raises(FlowFailed) as caught:
            run.result()
    shown = [str(caught.value), repr(caught.value.__dict__), caplog.text, repr(lines)]
    shown += [str(run.effects()), str(run.steps()), str(run.info()), str(run.checkpoint().state)]
    shown += [str(run.entry(entry.seq).contents) for entry in run.history()]
    shown += [str(flow.dry_run(secretive)), raw_bytes().decode(errors="replace")]
    for value in (VALUE, "hunter2", "pässword", "0ther-value", "first-line-of-key", "second-line-of-key"):
        for text in shown:
            assert value not in text, value
    assert (memdir / "undone").read_text() == "0ther-value\n"
    said = [line.text for line in lines]
    assert said.count("***") >= 4
    assert any("TOKEN=***" in text for text in said)


def test_secrets_are_read_anew_at_each_drive(memdir: Path, monkeypatch: pytest.MonkeyPatch, mem: Holdfast) -> None:
    monkeypatch.setenv("TOKEN", "the-first-value")
    (memdir / "s.yaml").write_text(
        "name: s\nsecrets: [TOKEN]\nsteps:\n  - {id: a, ask: 'go?'}\n"
        "  - {id: b, run: 'printf %s {{ secrets.TOKEN | quote }} > out'}\n"
    )
    run = flow.load(memdir / "s.yaml").start(mem)
    monkeypatch.setenv("TOKEN", "the-second-value")
    run.answer(True)
    run.resume()
    assert (memdir / "out").read_text() == "the-second-value"


@pytest.mark.parametrize(("value", "remedy"), [(None, "set the environment variable TOKEN"), ("abc", "less than 4")])
def test_a_secret_that_is_not_here_is_told(
    load: Any, mem: Holdfast, monkeypatch: pytest.MonkeyPatch, value: str | None, remedy: str
) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("TOKEN", value)
    run = load("secrets: [TOKEN]\nsteps:\n  - {id: a, run: 'echo {{ secrets.TOKEN | quote }}'}\n").start(mem)
    with pytest.raises(FlowFailed, match=remedy):
        run.result()
    assert value is None or value not in str(run.checkpoint().state)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    vault = Vault({"A": Source(file="none.txt")}, str(tmp_path))
    with pytest.raises(SecretMissing, match=r"put it into the file '.*none.txt' \(FileNotFoundError\)"):
        vault.secret("A")
    with pytest.raises(SecretMissing, match="declare it under `secrets:`"):
        vault.secret("B")


def test_a_quoted_secret_is_one_word_whatever_it_has(load: Any, mem: Holdfast, memdir: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TOKEN", "a'; touch injected; echo '$HOME \"\\")
    run = load("secrets: [TOKEN]\nsteps:\n  - {id: a, run: 'printf %s {{ secrets.TOKEN | quote }} > out'}\n").start(mem)
    run.result()
    assert (memdir / "out").read_text() == "a'; touch injected; echo '$HOME \"\\"
    assert not (memdir / "injected").exists()


def test_a_quoted_variable_is_one_word_whatever_it_has(load: Any, mem: Holdfast, memdir: Path) -> None:
    flow = load("vars: {v: x}\nsteps:\n  - {id: a, run: 'printf %s {{ vars.v | quote }} > out'}\n")
    evil = "a'; touch injected; echo '$(touch injected)`touch injected`\n"
    flow.start(mem, {"v": evil}).result()
    assert (memdir / "out").read_text() == evil
    assert not (memdir / "injected").exists()


# --- the masker

SECRETS = st.lists(st.text("abAB'", min_size=4, max_size=6), min_size=1, max_size=3)


@given(SECRETS, st.text("abAB' \n", max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_values_are_taken_out_wherever_the_text_is_cut(secrets: list[str], text: str, cuts: list[int]) -> None:
    for secret in secrets:  # so that there is something to find
        text = text[: len(text) // 2] + secret + text[len(text) // 2 :]
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    masker = Masker(secrets)
    shown = "".join(masker.feed(text[a:b]) for a, b in pairwise(places)) + masker.end()
    assert not any(secret in shown.replace("***", "\0") for secret in secrets)
    whole = Masker(secrets)
    assert shown == whole.feed(text) + whole.end()


def test_the_beginning_of_one_value_may_be_inside_of_another() -> None:
    masker = Masker(["abab", "bcqq", "cxyz"])
    assert masker.feed("-ababc") == "-***"  # the rest may be the beginning of the third
    assert masker.feed("xyz-") + masker.end() == "***-"


def test_spellings_and_lines_are_taken_out() -> None:
    masker = Masker(['p@ss "word"/1', "line one\nline two"])
    text = 'https://u:p%40ss%20%22word%22%2F1@h {"a": "p@ss \\"word\\"/1"} > line one\r\n> line two\n'
    assert masker.feed(text) + masker.end() == 'https://u:***@h {"a": "***"} > ***\r\n> ***\n'


def test_a_masker_without_secrets_holds_nothing_back() -> None:
    masker = Masker([])
    assert masker.feed("abc") == "abc"
    assert not masker.hides


def test_a_secret_in_a_result_is_taken_out(load: Any, mem: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "5omething")
    text = "- {id: a, call: 'flow_calls:length', with: {token: '{{ secrets.TOKEN }}'}}"
    run = load(f"secrets: [TOKEN]\nsteps:\n  {text}\n").start(mem)
    assert run.checkpoint().state["steps"]["a"] == {"status": "ok", "result": 9}


def test_what_shells_servers_and_broken_bytes_make_of_a_value_is_taken_out() -> None:
    masker = Masker(["it's a/b+c", "abc\udcffdef"])
    text = "'it'\"'\"'s a/b+c' 'it'\\''s a/b+c' /it%27s%20a/b%2Bc ?it%27s+a%2Fb%2Bc abc\ufffddef"
    assert masker.feed(text) + masker.end() == "'***' '***' /*** ?*** ***"


def test_a_key_of_many_lines_costs_no_more_than_a_word() -> None:
    """Done form by form and place by place, this would take minutes: then the test hangs, which is told."""
    masker = Masker(["\n".join(f"{n:064x}" for n in range(300))])
    text = "".join(f"{n * 2:064x}\n" for n in range(700))
    shown = "".join(masker.feed(text[place : place + 5000]) for place in range(0, len(text), 5000)) + masker.end()
    assert shown.count("***") == 150
    assert len(shown) == 150 * 4 + 550 * 65


def test_a_secret_is_named_where_a_call_is_told(load: Any, mem: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "5omething")
    given = "{token: '{{ secrets.TOKEN }}'}"
    undo = f"{{call: 'flow_calls:keep', with: {given}}}"
    steps = f"  - {{id: a, call: 'flow_calls:length', with: {given}, undo: {undo}}}\n  - {{id: b, run: exit 1}}\n"
    run = load(f"secrets: [TOKEN]\non_failure: rollback\nsteps:\n{steps}").start(mem)
    [effect] = run.effects()
    assert effect.target == "flow_calls:length(token='<secret TOKEN>')"
    assert effect.status == "undone"  # whatever its function gives: nothing of that is kept
