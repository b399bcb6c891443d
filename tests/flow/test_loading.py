"""A flow file is checked as a whole, at load, and everything that is wrong with it is told with its place."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from holdfast import flow
from holdfast.errors import FlowInvalid
from holdfast.flow import Problem
from holdfast.flow.file.document import MAX_BYTES, NotRead, Text, compose, decoded
from holdfast.flow.file.keys import ACTIONS, BLOCKS, STEP, schema

Problems = Callable[[str], list[Problem]]
HEAD = "name: sample\nsteps:\n"


def told(found: list[Problem]) -> list[str]:
    return [f"{one.line}:{one.column} {one.message}" for one in found]


def test_all_problems_are_told_at_once_with_line_and_column(problems: Problems) -> None:
    found = problems(
        "name: sample\n"
        "vars:\n"
        "  size: {type: integer, default: big}\n"
        "step: 1\n"
        "steps:\n"
        "  - id: build\n"
        "    rum: make\n"
        "  - id: build\n"
        "    run: echo {{ vars.sise | quote }}\n"
        "    timeout: soon\n"
        "    on_failure: {goto: nowhere}\n"
        "  - id: say\n"
        "    run: echo\n"
        "    when: vars.size =\n"
    )
    assert told(found) == [
        "3:34 the default of variable 'size' is integer, not 'big'",
        "4:1 unknown key 'step'; did you mean `steps`?",
        "6:5 a step does something: it has one of run, call, http, ask, flow, set, wait, parallel, steps",
        "7:5 unknown key 'rum'; did you mean `run`?",
        "8:9 the id 'build' is taken already, in line 6; each step has its own",
        "9:18 there is no `vars.sise`; did you mean `size`?",
        "10:14 `timeout` is a duration, such as 90 (seconds), 5m or 1h30m, not text",
        "11:24 there is no step 'nowhere' in the flow itself to go to",
        "14:11 the template is refused: the condition ends before its text does",
    ]
    assert all(one.severity == "error" for one in found)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("run: a, call: 'm:f'", "a step does one thing: `run` or `call`, not both"),
        ("run: a, with: {b: 1}", "`with` goes with `call`, `flow`, and there is none here"),
        ("run: a, limit: 2", "`limit` goes with `for_each`, `parallel`, and there is none here"),
        ("run: a, limit: 33, for_each: [1]", "`limit` is a whole number from 1 to 32, not 33"),
        ("run: a, delay: 2s", "`delay` goes with `loop`, `until`, and there is none here"),
        (
            "wait: 1s, retry: 2",
            "`retry` goes with `run`, `call`, `http`, `flow`, `parallel`, `steps`, and there is none here",
        ),
        ("ask: ok?, undo: rm x", "`undo` goes with `run`, `call`, `http`, and there is none here"),
        (
            "set: {a: 1}, timeout: 2s",
            "`timeout` goes with `run`, `call`, `http`, `flow`, `parallel`, `steps`, `ask`, and",
        ),
        ("wait: 1s, on_failure: retry", "only `run`, `call`, `http`, `flow`, `parallel`, `steps` can be tried again"),
        ("wait: soon", "'soon' is not a duration, such as 90 or 5m"),
        ("wait: {for: 1, until: x}", "it has exactly one of for, until, not for, until"),
        ("run: a, for_each: [1], loop: 2", "a step has items (`for_each`) or rounds (`loop`, `until`), not both"),
        ("set: {a: 1}, for_each: [1]", "`set` is inside of a `for_each`, whose parts run side by side and do not"),
        ("ask: {prompt: a, type: text, options: [b]}", "a question has `type` or `options`, not both"),
        ("ask: {prompt: a, default: 1}", "a `default` is for a question with a `timeout`, and there is none"),
        ("ask: {prompt: a, fields: [{name: b, type: choice}]}", "a choice has options (text), and only a choice has"),
        ("http: {url: a, json: 1, body: b}", "a request has a `json` or a `body`, not both"),
        ("http: {method: GET}", "the key `url` is missing: where to"),
        ("http: {url: a, method: GOT}", "'GOT' is not one of GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS; did you"),
        ("run: a, undo: {run: b, call: 'm:f'}", "it has exactly one of run, http, call, not run, call"),
        ("run: a, on_failure: explode", "'explode' is not one of abort, skip, retry, rollback"),
        ("run: a, breakpoint: 3", "`breakpoint` is true, false, before or after, not 3"),
        ("call: no_such_module:f", "module no_such_module cannot be imported: ModuleNotFoundError"),
        ("call: 'os:no_such'", "module os has no function 'no_such'"),
        ("call: 'os.path:join'", "os.path:join does not take these arguments: missing a required argument: 'a'"),
        ("flow: not-there.yaml", "there is no file /tmp/not-there.yaml"),
        ("run: 'echo {{ item | quote }}'", "there is no `item` here; it is known inside of `for_each`"),
        ("run: a, for_each: '{{ item }}'", "there is no `item` here; it is known inside of `for_each`"),
        ("run: 'echo {{ env | quote }}'", "there is no name 'env' here; there are index, item, run, secrets, steps"),
        ("run: 'echo {{ secrets.KEY | quote }}'", "there is no `secrets.KEY`; none is declared"),
        ("run: 'echo {{ steps.b.stdout | quote }}'", "there is no `steps.b`; there are a"),
        ("parallel: [{id: b, run: x, breakpoint: true}]", "a `breakpoint` is for steps of the flow itself"),
        ("parallel: [{id: b, run: x, on_failure: {goto: a}}]", "`goto` is for steps of the flow itself"),
        ("parallel: [{id: b, set: {x: 1}}]", "`set` is inside of a `parallel`"),
        ("for_each: [1], steps: [{id: b, run: x}], until: 'steps.b'", "a step has items"),
        ("steps: []", "`steps` is empty; it needs at least 1"),
        ("run: [a]", "`run` is text (a template), not a list"),
    ],
)
def test_what_does_not_go_together_is_told(problems: Problems, step: str, message: str) -> None:
    found = problems(f"{HEAD}  - {{id: a, {step}}}\n")
    assert any(message in one.message for one in found), told(found)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "the file is empty"),
        ("a: [1, 2", "2:1", "this is not YAML"),
        ("a: 1\na: 2\n", "2:1", "'a' is here twice; the first is in line 1"),
        ("--- 1\n--- 2\n", "2:1", "a file has one flow; a second document begins here"),
        ("a: !!python/object:os.system x\n", "1:4", "the tag tag:yaml.org,2002:python/object:os.system is not"),
        ("a: !secret x\n", "1:4", "the tag !secret is not for flows"),
        ("a: &x [1]\nb: *y\n", "2:4", "there is no anchor &y"),
        ("a: &x [*x]\n", "1:8", "there is no anchor &x that ends before here"),
        ("a: {<<: {b: 1}}\n", "1:5", "merge keys (<<) are not for flows"),
        ("? [1]\n: 2\n", "1:3", "a key is text, not a list or mapping"),
        ("a: " + "9" * 40, "1:4", "the number has more than 30 digits"),
        ("a: \x01", "1:4", "this is not YAML"),
        ("[" * 100, "1:41", "it is nested more than 40 deep"),
        ("- " * 100 + "1", "1:81", "it is nested more than 40 deep"),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(problems: Problems, text: str, place: str, message: str) -> None:
    [found] = problems(text)
    assert message in found.message
    assert f"{found.line}:{found.column}" == place


def test_a_yaml_bomb_is_refused(problems: Problems) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    [found] = problems(bomb)
    assert "it stands for more than 20,000 values" in found.message


def test_an_alias_that_is_small_is_fine(problems: Problems) -> None:
    assert problems(f"{HEAD}  - {{id: a, run: x, env: &env {{A: b}}}}\n  - {{id: b, run: y, env: *env}}\n") == []


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"# " + b"x" * MAX_BYTES)
    assert "a flow has at most 1,000,000" in flow.check(path)[0].message
    path.write_bytes(b"name: a\nx: \xff\n")
    [problem] = flow.check(path)
    assert (problem.line, problem.column, problem.message) == (2, 4, "the file is not UTF-8 text")
    assert "cannot be read: No such file" in flow.check(tmp_path / "none.yaml")[0].message


def test_plain_scalars_are_read_as_yaml_1_2_does() -> None:
    text = "a: yes\nb: 1:30\nc: 2020-01-01\nd: 010\ne: 1e3\nf: true\ng: ~\nh: 0x1F\ni: .5\nj: '7'\nk: !!str 7\nl:\n"
    assert compose(Text.of("t", text)).plain_data() == {
        "a": "yes", "b": "1:30", "c": "2020-01-01", "d": "010", "e": 1000.0, "f": True, "g": None, "h": "0x1F",
        "i": 0.5, "j": "7", "k": "7", "l": None,
    }  # fmt: skip


def test_a_byte_order_mark_is_no_text() -> None:
    assert decoded(b"\xef\xbb\xbfa") == "a"
    with pytest.raises(NotRead):
        decoded(b"\xff")


def test_flow_invalid_has_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: sample\nsteps:\n" + "".join(f"  - {{id: s{n}, rum: x}}\n" for n in range(9)))
    with pytest.raises(FlowInvalid) as caught:
        flow.load(path)
    assert len(caught.value.problems) == 18
    assert f"{path}:3:5: error: a step does something" in str(caught.value)
    assert "and 13 more" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("step", "places"),
    [
        ("run: echo {{ vars.a }}", ["4:15"]),
        ("run: echo {{ vars.a | quote }} {{ vars.a|upper }}", ["4:36"]),
        ("run: echo\n    undo: 'rm {{ vars.a }}'", ["5:15"]),
        ("run: echo\n    undo: {run: 'rm {{ vars.a }}'}", ["5:21"]),
        ("run: \"{% raw %}{{{% endraw %}echo {{ 'x' }} {{ vars.a }}\"", ["4:49"]),
        ("run: echo {{ vars.a | quote }}", []),
        ("ask: 'ok {{ vars.a }}?'", []),
    ],
)
def test_a_variable_that_a_shell_would_read_is_warned_about(problems: Problems, step: str, places: list[str]) -> None:
    found = problems(f"name: sample\nsteps:\n  - id: a\n    {step}\nvars: {{a: x}}\n")
    assert [f"{one.line}:{one.column}" for one in found] == places
    assert all(one.severity == "warning" and "| quote" in one.message for one in found)


def test_a_warning_in_a_block_of_lines_has_its_own_line(problems: Problems) -> None:
    found = problems("name: s\nvars: {a: x}\nsteps:\n  - id: a\n    run: |\n      echo ä\n      echo {{ vars.a }}\n")
    assert [(one.line, one.column) for one in found] == [(7, 12)]


def test_a_step_of_an_item_is_not_known_outside(problems: Problems) -> None:
    inside = "  - {id: a, for_each: [1], steps: [{id: b, run: x}, {id: c, run: 'echo {{ steps.b.stdout | quote }}'}]}\n"
    assert problems(HEAD + inside) == []
    [found] = problems(f"{HEAD}{inside}  - {{id: d, run: 'echo {{{{ steps.b.stdout | quote }}}}'}}\n")
    assert found.message == "step 'b' is done for each item of 'a'; outside of that, use `steps.a.items`"


def test_a_problem_in_a_block_of_lines_has_its_own_line(problems: Problems) -> None:
    head = "name: s\nsteps:\n  - id: a\n"
    [name] = problems(f"{head}    run: |\n      echo ä\n      echo b {{{{ vars.x | quote }}}}\n")
    assert (name.line, name.column) == (6, 17)
    [syntax] = problems(f"{head}    run: |\n      echo ä\n      echo b {{{{ vars. }}}}\n      echo\n")
    assert (syntax.line, syntax.column) == (6, 7)
    [syntax] = problems(f'{head}    run: "echo {{{{ vars. }}}}"\n')
    assert (syntax.line, syntax.column) == (4, 10)


def test_secrets_stand_only_where_they_are_not_stored(problems: Problems) -> None:
    for step in ("set: {x: '{{ secrets.K }}'}", "ask: '{{ secrets.K }}?'", "run: a, when: secrets.K == 'x'"):
        assert problems(f"secrets: [K]\n{HEAD}  - {{id: a, {step}}}\n"), step
    for step in ("run: 'echo {{ secrets.K | quote }}'", "http: {url: a, headers: {A: '{{ secrets.K }}'}}"):
        assert problems(f"secrets: [K]\n{HEAD}  - {{id: a, {step}}}\n") == [], step
    for use in ("secrets.K | upper", "secrets.K ~ 'x'", "secrets['K'] == 'x'", "secrets", "[secrets.K]"):
        [found] = problems(f'secrets: [K]\n{HEAD}  - {{id: a, env: {{X: "{{{{ {use} }}}}"}}, run: a}}\n')
        assert "a secret stands alone" in found.message


def test_the_published_schema_is_what_the_table_makes() -> None:
    published = Path(flow.__file__).parent / "schema.json"
    assert json.loads(published.read_text()) == schema(), "write it again: python docs/generate.py"
    text = json.dumps(schema())
    for block in BLOCKS:
        assert block.name == "flow" or f"#/$defs/{block.name}" in text, block.name
    assert set(ACTIONS) <= set(STEP.keys)


@pytest.mark.parametrize("file", sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml")), ids=str)
def test_the_schema_takes_what_the_check_takes(file: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    data = compose(Text.of("t", file.read_text())).plain_data()
    assert list(validator.iter_errors(data)) == []


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ("rum: x", "$.steps[0]"),
        ("run: [x]", "$.steps[0].run"),
        ("run: x, timeout: soon", "$.steps[0].timeout"),
        ("run: x, on_failure: {goto: a, b: c}", "$.steps[0].on_failure"),
        ("parallel: [{id: b, run: x, limit: 99}]", "$.steps[0].parallel[0].limit"),
        ("http: {method: GET}", "$.steps[0].http"),
    ],
)
def test_the_schema_refuses_what_the_check_refuses(problems: Problems, step: str, place: str) -> None:
    text = f"{HEAD}  - {{id: a, {step}}}\n"
    assert problems(text)
    found = jsonschema.Draft202012Validator(schema()).iter_errors(compose(Text.of("t", text)).plain_data())
    assert [error.json_path for error in found] == [place]


def test_every_key_says_what_it_means() -> None:
    for block in BLOCKS:
        for key in block.keys.values():
            assert len(key.doc) > 2, f"{block.name}.{key.name}"
            assert not key.doc.endswith(".")


def test_aliases_of_aliases_are_not_nested_without_end(problems: Problems) -> None:
    levels = [f"  o{n}: &a{n} {'[' * 30}{f'*a{n - 1}' if n else 1}{']' * 30}\n" for n in range(25)]
    [found] = problems(f"{HEAD}  - {{id: a, run: x}}\noutputs:\n{''.join(levels)}")
    assert (found.line, found.message) == (6, "it is nested more than 40 deep")


def test_a_number_that_is_also_a_key_stays_a_number() -> None:
    data = compose(Text.of("t", "a: &n 5\nb: {*n : 1}\n")).plain_data()
    assert data == {"a": 5, "b": {"5": 1}}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("vars: {x: 1e999}\nsteps: [{id: a, run: x}]", "2:11", "the number is too large"),
        ("vars: {x: {type: integer, options: [1, b]}}\nsteps: [{id: a, run: x}]", "2:40", "is integer, not 'b'"),
        ('steps: [{id: a, flow: "a\\0b"}]', "2:23", "has no NUL character"),
        ("steps: [{id: __end__, run: x}]", "2:14", "'__end__' is not an id"),
        ("steps: [{id: a, run: x, timeout: 0}]", "2:34", "`timeout` is longer than nothing"),
        ("steps: [{id: a, call: 'flow_calls:unstorable', retry: {times: 1, on: [1]}}]", "2:70", "`on` goes with"),
        ("steps: [{id: a, wait: 5, retry: 1}]", "2:33", "`retry` goes with `run`, `call`, `http`, `flow`"),
        ("steps: [{id: a, set: {x: 1}, timeout: 1}]", "2:39", "`timeout` goes with"),
        ("steps: [{id: a, timeout: 1, ask: {prompt: x, type: integer, default: y}}]", "2:70", "default is no answer"),
        ("steps: [{id: a, timeout: 1, ask: {prompt: x, options: [a], default: b}}]", "2:69", "default is no answer"),
    ],
)  # fmt: skip
def test_what_would_fail_only_in_a_run_is_found_before(problems: Problems, text: str, place: str, message: str) -> None:
    [found] = problems(f"name: sample\n{text}\n")
    assert f"{found.line}:{found.column}" == place
    assert message in found.message


def test_a_module_that_ends_the_process_is_told(
    problems: Problems, monkeypatch: pytest.MonkeyPatch, memdir: Path
) -> None:
    (memdir / "ends_at_once.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(memdir)
    [found] = problems(f"{HEAD}  - {{id: a, call: 'ends_at_once:f'}}\n")
    assert "module ends_at_once cannot be imported: SystemExit: 3" in found.message
