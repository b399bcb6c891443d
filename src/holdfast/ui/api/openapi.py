"""The OpenAPI document of the API, from the table of operations and the structs that they take and give."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct

from holdfast import __version__
from holdfast.ui.api.operations import TABLE, Operation
from holdfast.ui.api.problems import MEDIA, Problem
from holdfast.ui.shapes import Nothing

LINES = "application/x-ndjson"  # of a file, which is not JSON as a whole
REF = "#/components/schemas/{name}"
REFUSED = {
    400: "The body is not JSON, or was cut short.",
    401: "A token is missing or wrong.",
    403: "The token may not do this, or the request comes from another site.",
    404: "There is no such run, entry, queue or schedule.",
    405: "Not this way.",
    408: "The body did not arrive in time.",
    409: "It cannot be done as things stand.",
    410: "What is asked for was erased.",
    413: "The body, or a value in it, is too large.",
    415: "The body is not JSON.",
    421: "The server does not answer for this host.",
    422: "What was sent does not fit.",
    500: "Something stored is damaged, or nobody foresaw this.",
    503: "The store cannot be used now, or too many streams are open.",
    507: "The disk is full.",
}
GUARDED = {412: "The run has changed since it was seen.", 428: "If-Match is missing."}
_PARTS = {
    "run": "The id of the run.",
    "seq": "The number of the entry.",
    "question": "The id of the question.",
    "queue": "The name of the queue.",
    "schedule": "The id of the schedule.",
}


def document() -> dict[str, Any]:
    """The whole document."""
    kinds: list[Any] = [Problem]
    for operation in TABLE:
        kinds += [
            kind for kind in (operation.body, operation.gives) if isinstance(kind, type) and issubclass(kind, Struct)
        ]
        kinds += [one.type for one in _fields(operation)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    known = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in TABLE:
        paths.setdefault(f"/api/v1{operation.path}", {})[operation.method.lower()] = _described(operation, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "Runs, questions, queues, schedules and workers of one store. An id in a path is one part "
            "of it, percent-encoded, slashes too; the ids `.` and `..`, and those that begin with `~`, get a `~` "
            "before them.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: _tidy(one) for name, one in components.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


def _tidy(schema: Any) -> Any:
    """The same schema, its texts without indentation."""
    if isinstance(schema, list):
        return [_tidy(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _tidy(one) for name, one in schema.items()}
    if isinstance(made.get("description"), str):
        made["description"] = inspect.cleandoc(made["description"]).replace("``", "`")
    return made


def _fields(operation: Operation) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(operation.query or Nothing)


def _described(operation: Operation, known: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.path.split("/")[1]],
        "parameters": [*_in_path(operation), *_in_query(operation, known), *_in_headers(operation)],
        "responses": _responses(operation, known),
    }
    if operation.body is not None:
        wants = any(one.required for one in msgspec.structs.fields(operation.body))
        told["requestBody"] = {
            "required": wants,
            "content": {"application/json": {"schema": known[repr(operation.body)]}},
        }
    return told


def _in_path(operation: Operation) -> list[dict[str, Any]]:
    kinds = {"seq": {"type": "integer", "minimum": 0}}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARTS[name],
            "schema": kinds.get(name, {"type": "string", "minLength": 1, "maxLength": 512}),
        }
        for name in operation.params
    ]


def _in_query(operation: Operation, known: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for one in _fields(operation):
        schema = dict(known[repr(one.type)])
        if one.default is not NODEFAULT and one.default is not None:
            schema["default"] = one.default
        found.append({"name": one.encode_name, "in": "query", "required": one.required, "schema": _given(schema)})
    return found


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without null: what is null is left out of a query."""
    either = schema.get("anyOf")
    if either is None:
        return schema
    left = [one for one in either if one != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**left[0], **rest} if len(left) == 1 else {**rest, "anyOf": left}


def _in_headers(operation: Operation) -> list[dict[str, Any]]:
    found = []
    if operation.guarded:
        told = "The ETag of the run as you saw it, or `*` for any."
        found.append({"name": "If-Match", "in": "header", "required": True, "description": told})
    if operation.repeatable:
        told = "The same for each repetition of one request, which is then carried out once. Kept for a day."
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "description": told})
    lengths = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}
    return [{**one, "schema": lengths} for one in found]


def _responses(operation: Operation, known: dict[str, Any]) -> dict[str, Any]:
    is_file = operation.gives is bytes
    kind = "text/event-stream" if operation.streams else LINES if is_file else "application/json"
    schema = {"type": "string"} if operation.streams or is_file else known[repr(operation.gives)]
    done = {
        "description": operation.call.__doc__ if operation.streams else "What it gives.",
        "content": {kind: {"schema": schema}},
    }
    refused = {**REFUSED, **(GUARDED if operation.guarded else {})}
    problem = {MEDIA: {"schema": known[repr(Problem)]}}
    return {
        str(operation.status): done,
        **{str(status): {"description": said, "content": problem} for status, said in sorted(refused.items())},
    }
