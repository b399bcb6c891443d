"""Ids in addresses: any id is one part of a path, whatever characters it has.

It is percent-encoded, slashes too. Two parts a browser would take for steps in the path, however they are written:
``.`` and ``..``; so these ids, and those that begin with ``~``, are written with a ``~`` before them.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor

_STEPS = (".", "..")


def part(id: str) -> str:
    """The id as one part of a path."""
    return quote(f"~{id}" if id in _STEPS or id.startswith("~") else id, safe="")


def id_of(text: str) -> str:
    """The id that a part of a path stands for. What is not UTF-8 becomes text that no id can be."""
    return unquote(text, errors="surrogateescape").removeprefix("~")


class PartConvertor(Convertor[str]):
    """``{run:part}`` in a route: the guard leaves the path as it was sent, and here a part of it is decoded."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return id_of(value)

    def to_string(self, value: str) -> str:
        return part(value)


register_url_convertor("part", PartConvertor())
