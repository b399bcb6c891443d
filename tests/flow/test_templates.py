"""Templates reach plain values only, undefined names are errors, and nothing that they compute costs much."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import TemplateRefused
from holdfast.flow.actions.secrets import marked
from holdfast.flow.template.limits import MAX_TEXT, Placeholder, Unknown
from holdfast.flow.template.syntax import Mode
from holdfast.flow.template.template import Template

VALUES: dict[str, Any] = {
    "vars": {"env": "prod", "n": 3, "names": ["b", "a"], "on": True, "none": None, "long": "x" * 1000},
    "steps": {"build": {"status": "ok", "stdout": "v1\n", "items": [{"result": 1}, {"result": 2}]}},
    "secrets": {"KEY": marked("KEY")},
}


def render(source: str, mode: Mode = "text") -> Any:
    return Template(source, mode).render(VALUES)


@pytest.mark.parametrize(
    ("source", "gives"),
    [
        ("{{ vars.env }}-{{ vars['n'] + 1 }}", "prod-4"),
        ("{{ vars.on }} {{ vars.none }}| {{ vars.names }}", 'true | ["b", "a"]'),
        ("{{ steps.build.stdout | trim | upper }}", "V1"),
        ("{{ steps.build.items | map(attribute='result') | sum }}", "3"),
        ("{% for n in vars.names | sort %}{{ loop.index }}{{ n }}{% if loop.first %},{% endif %}{% endfor %}", "1a,2b"),
        ("{{ \"it's; rm -rf /\" | quote }} {{ ['a b', 'c'] | quote }}", "'it'\"'\"'s; rm -rf /' 'a b' c"),
        ("{{ vars.no | default('x') }}", "x"),
        ("{{ 'a,b'.split(',') | join('-') }} {{ vars.keys() | list | length }}", "a-b 6"),
        ("{{ '[1, 2]' | from_json | last }} {{ {'a': 1} | tojson }}", '2 {"a": 1}'),
        ("{{ vars.env ~ 1 ~ true }} {{ 2 ** 10 }} {{ 7 // 2 }} {{ 1.26 | round(1) }}", "prod1true 1024 3 1.3"),
        ("{{ range(3) | select('odd') | list }} {{ vars.names | reject('eq', 'a') | list }}", '[1] ["b"]'),
        ("{{ 'yes' if vars.env in ['prod'] else 'no' }}{# x #}{% raw %}{{ x }}{% endraw %}", "yes{# x #}{{ x }}"),
        ("no template\n", "no template\n"),
    ],
)  # fmt: skip
def test_what_a_template_gives(source: str, gives: str) -> None:
    assert render(source) == gives


def test_a_value_that_is_one_expression_keeps_its_type() -> None:
    assert render("{{ vars.names }}", "value") == ["b", "a"]
    assert render(" {{ vars.n + 1 }} ", "value") == 4
    assert render("{{ vars.n }}{{ vars.n }}", "value") == "33"
    assert render("{{ vars.names | map('upper') }}", "value") == ["B", "A"]
    assert render("vars.env == 'prod' and vars.n > 2", "condition") is True
    assert render("vars.names is defined and 'c' in vars.names", "condition") is False


@pytest.mark.parametrize(
    "source",
    [
        "{{ vars.nope }}",
        "{{ nope }}",
        "{{ steps.build.nope.more }}",
        "{{ vars.env.nope }}",
        "{{ vars.names[7] }}",
        "{{ vars.nope | upper }}",
        "{{ vars.nope() }}",
    ],
)
def test_an_undefined_name_is_an_error(source: str) -> None:
    with pytest.raises(TemplateRefused):
        render(source)
    with pytest.raises(TemplateRefused):
        render(source, "value")


def nested(loops: int, times: int, name: str, brackets: str = "[]") -> str:
    """Loops that each put what they have into a list so many times."""
    before, after = brackets
    inner = [f"{before}1, 2{after}", *(f"{before}{f'{name}{n},' * times}{after}" for n in range(loops - 1))]
    return "".join(f"{{% for {name}{n} in [{one}] %}}" for n, one in enumerate(inner))


BOMBS = [
    "{{ '%1000000000s' % 'a' }}",
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * 'a' }}",
    "{{ [1] * 10**9 }}",
    "{{ range(10**9) | list }}",
    "{{ 9 ** 99999 }}",
    "{{ (2**1000) * (2**1000) }}",
    "{{ 2.0 ** 99999 }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a' | center(10**9) }}",
    "{{ 'a' | indent(10**9) }}",
    "{{ vars.long | replace('x', vars.long * 100) | replace('x', vars.long) }}",
    "{{ vars.long | list | join(vars.long * 10) }}",
    "{{ [[[1] * 1000] * 1000] * 1000 == 1 }}",
    "{{ [vars.long * 900] * 100 }}",
    "{{ " + " ~ ".join(["vars.long"] * 1500) + " }}",
    "{% for a in range(100000) %}{{ vars.long }}{% endfor %}",
    "{{ 1.5 | round(10**9) }}",
    "{{ 5 | round(-10**9) }}",
    "{{ ('9' * 5000) | int // 0 }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "not " * 5000 + "1 }}",
    "{{ " + "-" * 5000 + "1 }}",
    "{{ vars" + ".a" * 5000 + " }}",
    "{{ " + "[" * 60 + "]" * 60 + " }}",
    "x" * 70_000,
    # The same list many times in a list, many times: small in memory, and endless for who goes through it.
    *(
        nested(5, 60, "a") + nested(5, 60, "b") + use + "{% endfor %}" * 10
        for use in ("{{ a4 == b4 }}", "{{ a4 in [b4] }}")
    ),
    nested(10, 20, "a") + "{{ vars[a9] }}" + "{% endfor %}" * 10,
    nested(10, 20, "a", "()") + "{{ vars.get(a9) }}" + "{% endfor %}" * 10,
    "{{ range(9999) | map(attribute='x', default=range(99999)) | list }}",
    "{{ range(99999) | map(attribute='x', default='y' * 1000000) | map('reverse') | list }}",
    "{% for a in b %}" * 11 + "{% endfor %}" * 11,
    "{% if 1 %}" + "{% elif 1 %}" * 3000 + "{% endif %}",
]


@pytest.mark.parametrize("source", BOMBS, ids=range(len(BOMBS)))
def test_what_would_cost_much_is_refused_at_once(source: str) -> None:
    """Done, each of them would take minutes, or all memory: then the test hangs, which is told."""
    with pytest.raises(TemplateRefused) as caught:
        render(source)
    assert len(str(caught.value)) < 1000


def test_a_loop_without_end_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.flow.template.limits.MAX_SECONDS", 0.05)
    for source in (
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% if range(9999) | select('odd') | list %}{% endif %}{% endfor %}",
        "{% for a in vars.many %}{% for b in vars.many %}{% for c in vars.many %}{% endfor %}{% endfor %}{% endfor %}",
    ):
        with pytest.raises(TemplateRefused, match="it takes longer than"):
            Template(source, "text").render({"vars": {"many": list(range(2000))}})


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ vars.__class__.__mro__ }}",
        "{{ vars['__class__'] }}",
        "{{ vars.get.__self__ }}",
        "{{ vars.get.__func__ }}",
        "{{ vars.items.__globals__ }}",
        "{{ vars.names | map(attribute='__class__') | list }}",
        "{{ range.__globals__ }}",
        "{{ loop.__class__ }}",
        "{% for a in [1] %}{{ loop._iterator }}{% endfor %}",
        "{% for a in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum() }}",
        "{{ namespace() }}",
        "{{ dict() }}",
        "{{ vars | attr('__class__') }}",
        "{% import 'os' as os %}",
        "{% include '/etc/passwd' %}",
        "{% extends '/etc/passwd' %}",
        "{% set x = 1 %}",
        "{% macro m() %}{% endmacro %}",
        "{% filter upper %}{% endfilter %}",
        "{% block a %}{% endblock %}",
        "{% for a in [1] recursive %}{{ loop([]) }}{% endfor %}",
        "{% for vars in [1] %}{% endfor %}",
        "{{ vars.update({'a': 1}) }}",
        "{{ vars.names.append(1) }}",
        "{{ vars.names.pop() }}",
        "{{ range }}",
        "{{ secrets }}",
        "{{ secrets.KEY | upper }}",
        "{{ 'a' | no_such }}",
        "{{ 'a' is no_such }}",
        "{{ vars.env ",
        "{% for %}",
        "{{ 'a' | quote | #counted }}",
        "{{ vars | ‘x’ }}",
    ],
)
def test_internals_files_and_statements_are_out_of_reach(source: str) -> None:
    with pytest.raises(TemplateRefused):
        render(source)


def test_a_condition_is_an_expression() -> None:
    with pytest.raises(TemplateRefused, match=r"without \{\{ \}\}"):
        render("{{ vars.on }}", "condition")
    with pytest.raises(TemplateRefused, match="ends before"):
        render("vars.on vars.on", "condition")


def test_a_secret_is_rendered_as_a_mark() -> None:
    text = render("-H {{ secrets.KEY | quote }} {{ secrets.KEY }}")
    assert text == "-H \ufdd2KEY\ufdd3 \ufdd0KEY\ufdd1"
    assert render("{{ secrets.KEY }}", "value") == "\ufdd0KEY\ufdd1"


def test_a_value_cannot_pretend_to_be_a_secret() -> None:
    values = {"vars": {"evil": "\ufdd0KEY\ufdd1"}}
    for source in ("{{ vars.evil }}", "{{ vars.evil | upper }}", "{{ vars }}", "{{ vars.evil ~ '' }}"):
        with pytest.raises(TemplateRefused, match="stands for secrets"):
            Template(source, "text").render(values)
    with pytest.raises(TemplateRefused, match="stands for secrets"):
        Template("{{ [vars.evil] }}", "value").render(values)


def test_what_is_not_known_yet_stays_so() -> None:
    values = {"steps": {"a": Placeholder("steps.a")}}
    assert Template("x {{ steps.a.stdout | trim | quote }} y", "text").render(values) == "x <steps.a.stdout> y"
    assert Template("{{ steps.a.n + 1 }}", "text").render(values) == "<steps.a.n>"
    for condition in ("steps.a.ok", "steps.a.n == 1", "steps.a.n is defined", "'x' in steps.a.list"):
        with pytest.raises(Unknown):
            Template(condition, "condition").render(values)


WORDS = """
{{ }} {% %} {# #} for in if else endfor endif set range vars steps . [ ] ( ) ' " | quote upper join default * ** % + - ~
/ // == < not and or is defined 1 9 99999999 a b __class__ loop item , : { }
"""
PIECES = st.sampled_from(WORDS.split())


@settings(max_examples=300)
@given(
    st.one_of(st.lists(PIECES, max_size=30).map(" ".join), st.text(max_size=40)),
    st.sampled_from(["text", "value", "condition"]),
)
def test_any_text_is_rendered_or_refused(source: str, mode: Mode) -> None:
    for text in (source, "{{ " + source + " }}"):
        try:
            given = Template(text, mode).render(VALUES)
        except TemplateRefused:
            continue
        assert mode != "text" or (isinstance(given, str) and len(given) <= MAX_TEXT)


def test_a_text_around_which_there_is_space_keeps_it() -> None:
    assert Template(" a {{ 1 }} ", "value").render({}) == " a 1 "
    assert Template("  a  ", "value").render({}) == "  a  "
    assert Template(" {{ 1 }} ", "value").render({}) == 1


@pytest.mark.parametrize("use", ["", "| tojson", "| quote", "| list", "| dictsort | list", "| items | list"])
def test_a_key_of_somebody_else_is_not_taken_for_a_secret(use: str) -> None:
    """Else an answer of a server could have the secret sent to it."""
    given = {"vars": {"answer": {"\ufdd0KEY\ufdd1": 1}}}
    with pytest.raises(TemplateRefused, match="stands for secrets"):
        Template(f"{{{{ vars.answer {use} }}}}", "text").render(given)
