"""Whatever a file holds, loading it gives a flow or problems with places: never another error, never a crash.

A failure prints the blob that repeats it.
"""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import VarsRefused
from holdfast.flow.file.document import NotRead, Text, compose
from holdfast.flow.file.keys import ACTIONS, BLOCKS
from holdfast.flow.file.loading import Loaded, load_text
from holdfast.flow.file.model import restored
from holdfast.flow.graph import FlowGraph, first_input
from holdfast.flow.plan import plan

GOOD = """\
name: release
vars: {env: {default: prod, options: [prod, test]}, days: [a, b], n: 3}
secrets: {TOKEN: {env: T}, KEY: }
once_per: {key: "{{ vars.env }}", ttl: 1h}
steps:
  - {id: build, run: "make {{ vars.env | quote }}", undo: "rm {{ steps.build.stdout | quote }}", retry: {times: 2}}
  - id: days
    for_each: "{{ vars.days }}"
    steps: [{id: one, run: "echo {{ item | quote }}", when: index > 0}]
  - {id: ask, ask: {prompt: ok?, fields: [{name: a, type: integer}]}, timeout: 5m}
  - {id: poll, loop: 3, until: steps.poll.status_code == 0, delay: 1s, http: {url: "http://h", json: [1]}}
  - {id: both, parallel: [{id: x, wait: 1s}, {id: y, run: z, on_failure: skip}], breakpoint: after}
  - {id: end, set: {n: "{{ vars.n + 1 }}"}, on_failure: {goto: build}}
outputs: {n: "{{ vars.n }}"}
"""
NAMES = sorted({name for block in BLOCKS for name in block.keys} - {"call", "flow", "file"})
WORDS = st.sampled_from(
    [*NAMES, "build", "x y", "{{ vars.n }}", "{{ secrets.TOKEN }}", "{{", "5m", "*a", "&a", "!!int", "<<"]
)
SCALARS = st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=25
)


def sound(loaded: Loaded) -> None:
    """What can be said of whatever came of a file."""
    for problem in loaded.problems:
        assert problem.line >= 1
        assert problem.column >= 1
        assert problem.message
        assert "\n" not in problem.message
    if loaded.definition is None:
        assert any(one.severity == "error" for one in loaded.problems)
        return
    assert restored(loaded.definition.stored()) == loaded.definition
    FlowGraph(loaded.definition).check()
    try:
        vars = first_input(loaded.definition, {})["vars"]
    except VarsRefused:
        return
    plan(loaded.definition, vars)


def load(text: str | bytes) -> Loaded:
    return load_text(text, "fuzzed.yaml", "/nowhere")


def test_the_good_one_is_good() -> None:
    assert load(GOOD).problems == ()
    sound(load(GOOD))


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.one_of(st.text(max_size=6), WORDS)), max_size=4
    )
)
def test_a_flow_with_damage(changes: list[tuple[int, int, str]]) -> None:
    text = GOOD
    for place, length, put in changes:
        text = text[:place] + put + text[place + length :]
    sound(load(text))


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    sound(load(data))
    sound(load(GOOD.encode()[:100] + data + GOOD.encode()[100:]))


@settings(max_examples=60)
@given(st.dictionaries(WORDS, TREES, max_size=6), st.lists(st.dictionaries(WORDS, TREES, max_size=6), max_size=4))
def test_any_tree(flow: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    for n, step in enumerate(steps):
        step.setdefault("id", f"s{n}")
        step.setdefault(ACTIONS[n % 1], "echo")
    data = {"name": "fuzzed", **flow, "steps": steps or flow.get("steps")}
    sound(load(yaml.safe_dump(data, allow_unicode=True)))


@settings(max_examples=150)
@given(TREES)
def test_what_is_read_is_what_yaml_says(tree: Any) -> None:
    """But for the words that YAML 1.1 alone takes for something else, which `safe_dump` puts in quotes."""
    try:
        read = compose(Text.of("t", yaml.safe_dump(tree, allow_unicode=True))).plain_data()
    except NotRead as refused:
        read = refused
    if isinstance(read, NotRead):
        assert any(word in read.message for word in ("digits", "key is text", "merge keys", "here twice"))
        return
    assert read == yaml.safe_load(yaml.safe_dump(tree, allow_unicode=True)) or _has_odd_number(tree)


def _has_odd_number(tree: Any) -> bool:
    """Floats such as 1e+300, which YAML 1.1 takes for text without a dot."""
    if isinstance(tree, dict):
        return any(map(_has_odd_number, [*tree, *tree.values()]))
    return any(map(_has_odd_number, tree)) if isinstance(tree, list) else isinstance(tree, float | int)


@pytest.mark.parametrize("data", [None, 3, [], {"format": 99}, {"format": 1, "name": "x"}, {"name": 1}])
def test_a_stored_definition_that_is_none_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"it is no flow|it has format 99"):
        restored(data)
