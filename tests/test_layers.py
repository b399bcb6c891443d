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
# Types only: an error carries what was found, and the structs of that belong to whoever finds it.
UPWARD = {("holdfast.errors", "holdfast.graph.verify"), ("holdfast.errors", "holdfast.views")}


class Import(NamedTuple):
    module: str
    target: str
    in_function: bool
    line: int


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
            wrong.append(f"{one.module}:{one.line} imports {one.target}")
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
        f"{one.module}:{one.line} imports {one.target}"
        for one in IMPORTS
        if leaf(one.target) and leaf(one.module) != leaf(one.target) and not one.module.startswith("holdfast.cli")
        if (leaf(one.module), leaf(one.target)) not in allowed
    ]
    assert wrong == []


def test_no_folder_has_too_many_modules() -> None:
    count: dict[str, int] = defaultdict(int)
    for path in MODULES.values():
        count[str(path.parent.relative_to(ROOT))] += path.name != "__init__.py"
    assert {folder: n for folder, n in count.items() if n > 18} == {}
