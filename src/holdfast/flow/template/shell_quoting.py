"""Where in a shell command a template stands: `quote` makes a word of its own, which is none inside of quotes.

This follows quotes, comments, substitutions and here-documents as far as a warning needs it. It is not a parser.
"""

from __future__ import annotations

import re

from holdfast.flow.template.sandbox import environment

_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z_][A-Za-z0-9_]*))")
_SINGLE, _DOUBLE, _TICK, _INNER, _COMMENT = "'", '"', "`", "(", "#"


def enclosed(source: str) -> list[bool]:
    """Of each ``{{ }}`` of a command, in their order: whether it is inside of quotes, or of a here-document."""
    scan, found = _Scan(), []
    for _, kind, text in environment().lexer.tokeniter(source, None):
        if kind == "variable_begin":
            found.append(scan.is_enclosed)
            scan.word = True
        elif kind == "data":
            scan.take(text)
    return found


class _Scan:
    """Goes through a command, piece by piece."""

    def __init__(self) -> None:
        self._inside: list[str] = []  # what was opened and not yet closed
        self._waiting: list[tuple[str, bool]] = []  # here-documents that begin with the next line
        self._ends: list[tuple[str, bool]] = []  # here-documents that are open: their last line, without tabs or not
        self._line = ""  # of a here-document, as far as it was seen
        self.word = False  # whether a word goes on here

    @property
    def is_enclosed(self) -> bool:
        return bool(self._ends) or (bool(self._inside) and self._inside[-1] in (_SINGLE, _DOUBLE))

    def take(self, text: str) -> None:
        place = 0
        while place < len(text):
            place = self._in_document(text, place) if self._ends else self._step(text, place)

    def _in_document(self, text: str, place: int) -> int:
        end = text.find("\n", place)
        if end < 0:
            self._line += text[place:]
            return len(text)
        line, self._line = self._line + text[place:end], ""
        word, tabs = self._ends[0]
        if (line.lstrip("\t") if tabs else line) == word:
            del self._ends[0]
        return end + 1

    def _step(self, text: str, place: int) -> int:
        char, top = text[place], self._inside[-1] if self._inside else ""
        before, self.word = self.word, not char.isspace() and char not in ";&|("
        if top == _SINGLE:
            if char == "'":
                self._inside.pop()
        elif char == "\n":
            if top == _COMMENT:
                self._inside.pop()
            self._ends, self._waiting = self._waiting, []
        elif top == _COMMENT:
            pass
        elif char == "\\":
            return place + 2
        elif char in (_DOUBLE, _TICK) and top == char:
            self._inside.pop()
        elif text.startswith("$(", place):
            self._inside.append(_INNER)
            return place + 2
        elif char in (_DOUBLE, _TICK) or (char == "'" and top != _DOUBLE):
            self._inside.append(char)
        elif top != _DOUBLE:
            return self._plain(text, place, before)
        return place + 1

    def _plain(self, text: str, place: int, in_word: bool) -> int:
        char = text[place]
        if char == "#" and not in_word:
            self._inside.append(_COMMENT)
        elif char == "(":
            self._inside.append(_INNER)
        elif char == ")" and self._inside and self._inside[-1] == _INNER:
            self._inside.pop()
        elif text.startswith("<<<", place):
            return place + 3
        elif found := _HERE.match(text, place):
            self._waiting.append((found[2] or found[3] or found[4], bool(found[1])))
            return found.end()
        return place + 1
