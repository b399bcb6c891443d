"""Who may import whom: only what stands further left, type-checking imports included. See ARCHITECTURE.md."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1] / "src"
LAYERS = [
    "errors",
    "secret",
    "codec",
    "kernel",
    "views",
    "forms",
    "stores",
    "engine.log",
    "engine.argument_checks",
    "engine.access",
    "engine.workflow",
    "engine.control",
    "engine.execute",
    "engine.worker",
    "engine.run",
    "engine.admin",
    "engine.app",
    "graph",
    "flow",
    "present",
    "cli",
]
BACKENDS = ["memory", "files", "sqlite", "postgres"]
# Types only: an error carries what was found.
UPWARD = {("holdfast.errors", "holdfast.graph.model"), ("holdfast.errors", "holdfast.views")}
# Two packages' worth of objects that know each other. All but one direction of each is for types alone.
CYCLES = {
    "engine.workflow": "each call of a workflow is given the Execution that it belongs to, which makes the call",
    "engine.access": "an Engine names the HeldRuns that its layers ask about, and a HeldRun has its Engine",
    "engine.run": "a claim gives the handle that it claims, and a handle makes the claim",
    "graph": "a Graph is a workflow, and its execution reads what the Graph declares",
}
# Loaded when first needed. Everything else is imported at the top.
LATE = {
    ("holdfast.engine.app", "holdfast.engine.worker.worker"): "asyncio",
    ("holdfast.engine.execute.execute", "holdfast.engine.workflow.concurrency.async_execution"): "asyncio",
    ("holdfast.testing", "holdfast.stores"): "the plugin imports this package",
    ("holdfast.testing.plugin", "holdfast.testing"): "pytest loads the plugin in every project that has Holdfast",
    ("holdfast.ui", "holdfast.ui.app"): "the extra `ui`; `holdfast.ui.hooks` does without",
}
LATE_PACKAGES = ("holdfast.cli", "holdfast.stores")  # commands, and optional backends


class Import(NamedTuple):
    module: str
    target: str
    in_function: bool
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "holdfast").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports_of(module: str, path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
            if base.split(".")[0] != "holdfast":
                continue
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(module, full if full in MODULES else base, id(node) in inside, node.lineno)


IMPORTS = [one for module, path in MODULES.items() for one in imports_of(module, path)]


def layer_of(module: str) -> int | None:
    name = module.removeprefix("holdfast.")
    places = [n for n, layer in enumerate(LAYERS) if name == layer or name.startswith(f"{layer}.")]
    return max(places, default=None)


def test_imports_lead_to_the_left() -> None:
    wrong = []
    for one in IMPORTS:
        here, there = layer_of(one.module), layer_of(one.target)
        if here is not None and there is not None and there > here and (one.module, one.target) not in UPWARD:
            wrong.append(str(one))
    assert wrong == []


def test_no_backend_imports_another() -> None:
    def backend(module: str) -> str | None:
        parts = module.split(".")
        return parts[2] if parts[:2] == ["holdfast", "stores"] and len(parts) > 2 and parts[2] in BACKENDS else None

    pairs = [(one, backend(one.module), backend(one.target)) for one in IMPORTS]
    assert [one for one, here, there in pairs if here and there and here != there] == []


def test_the_page_imports_nothing_of_the_command_line() -> None:
    wrong = [one for one in IMPORTS if one.module.startswith("holdfast.ui") and one.target.startswith("holdfast.cli")]
    assert wrong == []


def test_nothing_but_the_command_line_imports_the_page_or_the_importers() -> None:
    leaves = ("holdfast.ui", "holdfast.importers", "holdfast.integrations", "holdfast.testing")
    allowed = {("holdfast.importers", "holdfast.integrations")}  # the importer of LangGraph's checkpoints

    def leaf(module: str) -> str | None:
        return next((one for one in leaves if module == one or module.startswith(f"{one}.")), None)

    wrong = [
        str(one)
        for one in IMPORTS
        if leaf(one.target) and leaf(one.module) != leaf(one.target) and not one.module.startswith("holdfast.cli")
        if (leaf(one.module), leaf(one.target)) not in allowed
    ]
    assert wrong == []


def test_imports_stand_at_the_top() -> None:
    late = [one for one in IMPORTS if one.in_function and not one.module.startswith(LATE_PACKAGES)]
    assert [str(one) for one in late if (one.module, one.target) not in LATE] == []
    assert LATE.keys() - {(one.module, one.target) for one in late} == set(), "these are imported at the top by now"


def test_no_imports_go_in_a_circle_but_those_that_are_named() -> None:
    """Type-checking imports count, too. `holdfast/__init__` looks its names up when they are asked for."""
    graph = defaultdict[str, set[str]](set)
    for one in IMPORTS:
        if not one.in_function and one.module != "holdfast" and one.target not in ("holdfast", one.module):
            graph[one.module].add(one.target)
    circles = [sorted(circle) for circle in strongly_connected(graph) if len(circle) > 1]
    unnamed = [circle for circle in circles if not any(_is_within(circle, package) for package in CYCLES)]
    assert unnamed == []
    assert len(circles) == len(CYCLES), "a circle that is named is gone: take its name away"


def _is_within(circle: list[str], package: str) -> bool:
    return all(module.startswith(f"holdfast.{package}.") for module in circle)


def strongly_connected(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that lead to each other: those that reach and are reached."""
    reach = {module: _reached(graph, module) for module in list(graph)}
    found: list[set[str]] = []
    for module, there in reach.items():
        if module in there and not any(module in circle for circle in found):
            found.append({other for other in there if module in reach.get(other, set())})
    return found


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    ahead = [*graph.get(start, ())]
    while ahead:
        module = ahead.pop()
        if module not in seen:
            seen.add(module)
            ahead += graph.get(module, ())
    return seen


def test_no_folder_has_too_many_modules() -> None:
    count: dict[str, int] = defaultdict(int)
    for path in MODULES.values():
        count[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    assert {folder: n for folder, n in count.items() if n > 18} == {}
