"""A word that is no word: `quote` inside of quotes is warned about, and what stands there for a shell is left alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.flow import Problem
from holdfast.flow.template.shell_quoting import enclosed

Problems = Callable[[str], list[Problem]]


@pytest.mark.parametrize(
    ("command", "inside"),
    [
        ("echo {{ x }}", "-"),
        ('echo "{{ x }}" {{ x }}', "+-"),
        ("echo '{{ x }}' {{ x }}", "+-"),
        ("echo it\\'s {{ x }}", "-"),
        ('echo "\\"{{ x }}"', "+"),
        ('echo "it\'s {{ x }}" {{ x }}', "+-"),
        ('echo "a $(f {{ x }}) {{ x }}"', "-+"),
        ('echo "a `f {{ x }}` {{ x }}"', "-+"),
        ("(cd a; f {{ x }}) | g {{ x }}", "--"),
        ("case a in b) f {{ x }};; esac", "-"),
        ("# don't\necho {{ x }}", "-"),
        ("echo a#'b {{ x }}'", "+"),
        ("a={{ x }}#'\n{{ x }}'", "-+"),
        ("echo ${#a} {{ x }}", "-"),
        ("cat <<EOF\n{{ x }}\nit's\nEOF\necho {{ x }}", "+-"),
        ("cat <<-'E F' > y\n\t{{ x }}\n\tE F\n{{ x }}", "+-"),
        ("cat <<A <<B\na\nA\n{{ x }}\nB\n{{ x }}", "+-"),
        ("cat <<< {{ x }}\n{{ x }}", "--"),
        ("echo $(( 1 << 2 ))\n{{ x }}", "-"),
        ("{% if x %}echo '{{ x }}'{% endif %} {{ x }}", "+-"),
    ],
)
def test_where_a_template_stands(command: str, inside: str) -> None:
    assert enclosed(command) == [one == "+" for one in inside]


def test_quote_inside_of_quotes_is_warned_about(problems: Problems) -> None:
    """There it is no word: the shell would run what is in a variable."""
    [found] = problems(
        'name: s\nvars: {a: x}\nsteps:\n  - id: a\n    run: echo {{ vars.a | quote }} "{{ vars.a | quote }}"\n'
    )
    assert (found.line, found.column, found.severity) == (5, 37, "warning")
    assert "`quote` does not help inside of quotes or a here-document" in found.message
    assert problems("name: s\nsteps:\n  - {id: a, run: 'echo \"{{ 5 }}\"'}\n") == []


def test_braces_of_the_shell_are_left_to_it(load: Any, mem: Holdfast, memdir: Path) -> None:
    """Jinja's comments would swallow what is between."""
    load("steps:\n  - {id: a, run: 'v=abcde; w=${v#ab}; echo ${#v} ${w#}$w > out'}\n").start(mem).result()
    assert (memdir / "out").read_text() == "5 cdecde\n"
