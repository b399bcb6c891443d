"""The addresses of the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.ui.paths import part


def run_url(id: str, *parts: str | int, **query: Any) -> str:
    """The address of a run's page."""
    return with_query("/".join(["/runs", part(id), *(quote(str(one), safe="") for one in parts)]), query)


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """An address with what is given of a query; what is None or empty is left out."""
    given = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path
