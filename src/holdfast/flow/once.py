"""De-duplication of flows: a second start with the same key gives the run that there is
(`holdfast.engine.execute.dedup`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.access.operations import Op
from holdfast.engine.execute.dedup import find_alike
from holdfast.flow.file.model import Definition, Once
from holdfast.flow.template.template import template
from holdfast.kernel.model import Status

if TYPE_CHECKING:
    from holdfast.engine.access.client import Client

_GIVEN_UP = (Status.FAILED, Status.CANCELLED)


def key_of(once: Once, vars: dict[str, Any]) -> str:
    """The key of a start with these variables; raises `TemplateRefused`."""
    key: str = template(once.key, "text").render({"vars": vars})
    return key


def id_for(client: Client, definition: Definition, once: Once, vars: dict[str, Any]) -> Op[tuple[str, bool]]:
    """The id for a start with these variables, and whether that run is there already."""
    key = key_of(once, vars)
    id, record = yield from find_alike(client.store, definition.name, key, ttl=once.ttl, but=_GIVEN_UP)
    return id, record is not None
