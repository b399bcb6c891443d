"""Writes docs/reference/http.md from the table of operations, the structs that they take and give, and the problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.ui.api import openapi
from holdfast.ui.api.operations import TABLE, Operation
from holdfast.ui.api.problems import TABLE as PROBLEMS


def page() -> str:
    """The whole page."""
    document = openapi.document()
    parts = [
        "# The HTTP API\n",
        "How to use it: [the how-to](../howto/http-api.md). A running server has the same as an OpenAPI 3.1 document,",
        "at `/api/openapi.json`. Paths are under `/api/v1`.\n",
        f"{document['info']['description']}\n",
        *operations(document),
        *problems(),
        *shapes(document["components"]["schemas"]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def operations(document: dict[str, Any]) -> Iterator[str]:
    """What can be done, one after the other; then what each of them takes."""
    yield "## Operations\n"
    yield "Those that change something need a token that may act; the others are for whoever may look."
    yield "What is marked with ⚑ wants `If-Match`.\n"
    yield "| | | |\n|---|---|---|"
    for one in TABLE:
        yield f"| `{one.method}` | `{one.path}`{' ⚑' if one.guarded else ''} | {one.summary} |"
    yield ""
    for one in TABLE:
        yield from described(one, document["paths"][f"/api/v1{one.path}"][one.method.lower()])


def described(operation: Operation, told: dict[str, Any]) -> Iterator[str]:
    """One operation: its query, its body, and what it gives."""
    yield f"### `{operation.method} {operation.path}`\n"
    yield " ".join((operation.call.__doc__ or "").split()) + "\n"
    for one in told["parameters"]:
        if one["in"] == "query":
            wanted = "; must be given" if one["required"] else ""
            said = one["schema"].get("description", "")
            yield f"- `{one['name']}`: {kind(one['schema'])}{wanted}{'. ' + said if said else ''}"
    if operation.body is not None:
        yield f"- body: [{operation.body.__name__}](#{operation.body.__name__.lower()})"
    if operation.gives is bytes:
        yield f"- gives {operation.status}: a file, as `{openapi.LINES}`"
    elif not operation.streams:
        name = operation.gives.__name__
        yield f"- gives {operation.status}: [{name}](#{name.lower()})"
    yield ""


def problems() -> Iterator[str]:
    """The statuses of errors."""
    yield "## Problems\n"
    yield "Whatever is refused is answered with `application/problem+json`: `type` (such as"
    yield "`urn:holdfast:problem:question-closed`), `title`, `status`, `detail`, and if it fits `run`, `problems`.\n"
    yield "| status | when |\n|---|---|"
    for status, said in sorted({**openapi.REFUSED, **openapi.GUARDED}.items()):
        yield f"| {status} | {said} |"
    yield "\nThe [errors](errors.md) of Holdfast, with all below them in the tree:\n"
    yield "| error | status |\n|---|---|"
    for row in PROBLEMS:
        yield f"| `{row.error.__name__}` | {row.status} |"
    yield ""


def shapes(schemas: dict[str, Any]) -> Iterator[str]:
    """Everything that is taken or given."""
    yield "## Shapes\n"
    for name in sorted(schemas):
        schema = schemas[name]
        yield f"### {name}\n"
        said = " ".join(schema.get("description", "").split())
        if said:
            yield f"{said}\n"
        if "enum" in schema:
            yield f"One of {', '.join(f'`{one}`' for one in schema['enum'])}.\n"
        wanted = schema.get("required", ())
        for field, inner in schema.get("properties", {}).items():
            yield f"- `{field}`: {kind(inner)}{'' if field in wanted else '; may be left out'}"
        yield ""


def kind(schema: dict[str, Any]) -> str:
    """What a value is, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {kind(schema['items'])}" if schema.get("items") else "list"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            inner = schema["additionalProperties"]
            return f"object of {kind(inner)}" if inner else "object"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case "string":
            return "text"
        case None:
            return "anything"
        case other:
            return {"null": "null", "boolean": "true or false", "number": "number"}.get(other, other)
