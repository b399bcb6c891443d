"""What a template may hold: it is parsed, and its tree gone through once.

What is not in a short list of nodes is refused. Loops and joined texts become filters that count. Names are noted, so
that a flow's check can say which of them there are not.
"""

from __future__ import annotations

from typing import Any, Literal

from jinja2 import nodes
from jinja2.parser import Parser
from msgspec import Struct

from holdfast.flow.template.limits import MAX_DEPTH, refuse
from holdfast.flow.template.sandbox import COUNTED, JOINED, SIZED, Environment, environment

MAX_SOURCE = 64 * 1024  # characters of a template
MAX_LOOPS = 10  # inside of each other

Mode = Literal["text", "value", "condition"]
Gives = Literal["anything", "a word", "a constant"]  # for a shell

ROOTS = frozenset({"vars", "steps", "secrets", "item", "index", "run"})
_ASKING = frozenset({"default", "defined", "undefined"})  # what takes a name that is not there

_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.CondExpr, nodes.Name, nodes.Const),
    *(nodes.Tuple, nodes.List, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Getattr, nodes.Getitem, nodes.Slice),
    *(nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div),
    *(nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Concat),
    nodes.Call,
)


class Reference(Struct, frozen=True):
    """A name that a template uses: ``vars.env`` is the root ``vars`` with the part ``env``.

    Of a step, ``below`` are the names that follow on it; none if the template asks somewhere whether they are there.
    """

    root: str
    part: str | None
    below: tuple[str, ...] = ()


class Shape(Struct, frozen=True):
    """What is known of a template without rendering it. ``outputs`` are its ``{{ }}``: place, and what it gives."""

    references: tuple[Reference, ...]
    outputs: tuple[tuple[int, Gives], ...]


def parsed(source: str, mode: Mode) -> tuple[nodes.Template, bool]:
    """The tree of a template, and whether it is one expression whose value is kept."""
    if len(source) > MAX_SOURCE:
        refuse(f"it has {len(source):,} characters, and a template has at most {MAX_SOURCE:,}")
    env = environment()
    if mode == "condition":
        if "{{" in source or "{%" in source:
            refuse("a condition is written without {{ }}, such as `vars.env == 'prod'`")
        parser = Parser(env, source, state="variable")
        expression = parser.parse_expression()
        if not parser.stream.eos:
            refuse("the condition ends before its text does")
        return _kept(env, expression), True
    if mode == "value" and (alone := env.parse(source.strip()).body) and isinstance(alone[0], nodes.Output):
        parts = alone[0].nodes
        if len(alone) == len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData):
            return _kept(env, parts[0]), True
    return env.parse(source), False


def _kept(env: Environment, expression: nodes.Expr) -> nodes.Template:
    target = nodes.Name("result", "store", lineno=1)
    tree = nodes.Template([nodes.Assign(target, expression, lineno=1)], lineno=1)
    tree.set_environment(env)
    return tree


class Check:
    """Goes through a template's tree once: what is not in the list of nodes is refused, loops are bounded."""

    def __init__(self, source: str, is_expression: bool) -> None:
        self._source = source
        self._is_expression = is_expression
        self._references: list[Reference] = []
        self._below: dict[int, tuple[str, ...]] = {}  # the names that follow on a node, by its id
        self._asked: set[int] = set()  # the ids of nodes of which it is asked whether they are there
        self._excused: list[Reference] = []
        self._given: list[Gives] = []
        self._locals: list[str] = []
        self._loops = 0

    def shape(self, tree: nodes.Template) -> Shape:
        if self._is_expression:
            assign = tree.body[0]
            assert isinstance(assign, nodes.Assign)
            assign.node = self._output(assign.node, 1)
        else:
            self._inside(tree, 0)
        starts = _outputs(self._source) if not self._is_expression else [0]
        references = tuple(Reference(one.root, one.part) if self._is_excused(one) else one for one in self._references)
        return Shape(references, tuple(zip(starts, self._given, strict=False)))

    def _is_excused(self, one: Reference) -> bool:
        return any(one.part == known.part and one.below[: len(known.below)] == known.below for known in self._excused)

    def _inside(self, node: nodes.Node, depth: int) -> None:
        for name, value in list(node.iter_fields()):
            if isinstance(value, nodes.Node):
                setattr(node, name, self._visit(value, depth + 1))
            elif isinstance(value, list):
                made = [self._visit(one, depth + 1) if isinstance(one, nodes.Node) else one for one in value]
                setattr(node, name, made)

    def _visit(self, node: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            refuse(f"it is nested more than {MAX_DEPTH} deep")
        if not isinstance(node, _NODES):
            refuse(f"{_told(node)} is not for flows; use {{{{ }}}}, {{% if %}} and {{% for %}}")
        match node:
            case nodes.Output():
                data = nodes.TemplateData
                node.nodes = [one if isinstance(one, data) else self._output(one, depth + 1) for one in node.nodes]
                return node
            case nodes.Name():
                self._name(node)
                return node
            case nodes.If() if len(node.elif_) > MAX_DEPTH:
                refuse(f"{{% if %}} has more than {MAX_DEPTH} {{% elif %}}")
            case nodes.For():
                return self._loop(node, depth)
            case nodes.Getattr() | nodes.Getitem() if isinstance(node.node, nodes.Name) and node.node.name in ROOTS:
                self._refer(node)
                self._inside(node, depth)
                return node
            case nodes.Getattr() | nodes.Getitem():
                self._follow(node)
            case nodes.Filter() | nodes.Test():
                self._known(node)
                if node.name in _ASKING:
                    self._asked.add(id(node.node))
        self._inside(node, depth)
        if isinstance(node, nodes.Concat):
            return _filtered(node.nodes[0], JOINED, *node.nodes[1:])
        return _filtered(node, SIZED) if isinstance(node, nodes.List | nodes.Tuple | nodes.Dict) else node

    def _output(self, node: Any, depth: int) -> Any:
        """The expression of a ``{{ }}``: here alone may a secret stand."""
        quoted = isinstance(node, nodes.Filter) and node.name == "quote"
        self._given.append("a word" if quoted else "a constant" if isinstance(node, nodes.Const) else "anything")
        bare = node.node if isinstance(node, nodes.Filter) and node.name == "quote" and not node.args else node
        if isinstance(bare, nodes.Getattr | nodes.Getitem) and _is_secrets(bare):
            part = _part(bare)
            if part is None:
                refuse("a secret is named, as in secrets.TOKEN")
            self._references.append(Reference("secrets", part))
            return node
        return self._visit(node, depth)

    def _name(self, node: nodes.Name) -> None:
        if node.name in self._locals or node.name == "range" or (node.name == "loop" and self._locals):
            return
        if node.name == "secrets":
            refuse("a secret stands alone, as {{ secrets.NAME }} or {{ secrets.NAME | quote }}")
        self._references.append(Reference(node.name, None))

    def _refer(self, node: nodes.Getattr | nodes.Getitem) -> None:
        assert isinstance(node.node, nodes.Name)
        if node.node.name == "secrets":
            refuse("a secret stands alone, as {{ secrets.NAME }} or {{ secrets.NAME | quote }}")
        if node.node.name not in self._locals:
            part, is_step = _part(node), node.node.name == "steps"
            below = self._below.get(id(node), ()) if is_step and part is not None else ()
            made = Reference(node.node.name, part, below)
            self._references.append(made)
            if made.below and id(node) in self._asked:
                self._excused.append(made)

    def _follow(self, node: nodes.Getattr | nodes.Getitem) -> None:
        """Note for what is on the left of a dot which name follows on it. A name that is computed is not known."""
        part = _part(node)
        self._below[id(node.node)] = () if part is None else (part, *self._below.get(id(node), ()))
        if id(node) in self._asked:
            self._asked.add(id(node.node))

    def _loop(self, node: nodes.For, depth: int) -> nodes.For:
        if node.recursive:
            refuse("{% for %} is not recursive in flows")
        names = [one.name for one in node.target.find_all(nodes.Name)] + (
            [node.target.name] if isinstance(node.target, nodes.Name) else []
        )
        if ROOTS & set(names) or "loop" in names or "range" in names:
            refuse(f"{{% for %}} cannot use the name {names[0]!r}, which has a meaning already")
        self._loops += 1
        if self._loops > MAX_LOOPS:
            refuse(f"{{% for %}} stands in {{% for %}} more than {MAX_LOOPS} deep")
        node.iter = _filtered(self._visit(node.iter, depth + 1), COUNTED)
        self._locals += names
        node.test = self._visit(node.test, depth + 1) if node.test is not None else None
        node.body = [self._visit(one, depth + 1) for one in node.body]
        del self._locals[len(self._locals) - len(names) :]
        self._loops -= 1
        node.else_ = [self._visit(one, depth + 1) for one in node.else_]
        return node

    def _known(self, node: nodes.Filter | nodes.Test) -> None:
        env, what = environment(), "filter" if isinstance(node, nodes.Filter) else "test"
        known = env.filters if isinstance(node, nodes.Filter) else env.tests
        if node.name not in known or node.name.startswith("#"):
            names = ", ".join(sorted(name for name in known if not name.startswith("#")))
            refuse(f"there is no {what} {node.name!r}; there are {names}")
        if node.node is None:
            refuse("{% filter %} is not for flows")


def _filtered(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    made = nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
    made.set_environment(environment())
    return made


def _is_secrets(node: nodes.Getattr | nodes.Getitem) -> bool:
    return isinstance(node.node, nodes.Name) and node.node.name == "secrets"


def _part(node: nodes.Getattr | nodes.Getitem) -> str | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    return node.arg.value if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str) else None


def _told(node: nodes.Node) -> str:
    return f"{{% {type(node).__name__.lower()} %}}".replace("assignblock", "set").replace("assign", "set")


def _outputs(source: str) -> list[int]:
    """Where each ``{{`` is, but for those in raw blocks."""
    found, place = [], 0
    for _, kind, text in environment().lexer.tokeniter(source, None):
        if kind == "variable_begin":
            found.append(place)
        place += len(text)
    return found
