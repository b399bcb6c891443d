"""Secrets of a flow: declared by name, read from the environment or a file at each drive, never written down.

Where a template names a secret, its text has a mark instead. `Vault.reveal` puts the value there at the last moment,
right before it is given to a process or sent; `Vault.mask` and `Masker` take it out of what comes back.
"""

from __future__ import annotations

import os
import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from msgspec import Struct

from holdfast.codec.scrub import MARK, spellings
from holdfast.errors import SecretMissing
from holdfast.secret import Secret

SHORTEST = 4  # characters of a secret: shorter ones could not be masked
MAX_FILE = 64 * 1024

_OPEN, _CLOSE, _OPEN_QUOTED, _CLOSE_QUOTED = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
MARKS = frozenset((_OPEN, _CLOSE, _OPEN_QUOTED, _CLOSE_QUOTED))
_MARKED = re.compile("\ufdd0([^\ufdd0-\ufdd3]+)\ufdd1|\ufdd2([^\ufdd0-\ufdd3]+)\ufdd3")


class marked(Struct, frozen=True):
    """A secret in a template: its name, and whether a shell is to read it as one word."""

    name: str
    as_word: bool = False

    @property
    def mark(self) -> str:
        """What stands for it in a text."""
        return f"{_OPEN_QUOTED}{self.name}{_CLOSE_QUOTED}" if self.as_word else f"{_OPEN}{self.name}{_CLOSE}"

    def quoted(self) -> marked:
        """The same as one word of a shell."""
        return marked(self.name, as_word=True)


def told(value: Any) -> Any:
    """A rendered value as people see it: the names of secrets in place of their marks."""
    if isinstance(value, str):
        return _MARKED.sub(lambda found: f"<secret {found[1] or found[2]}>", value)
    if isinstance(value, list):
        return [told(one) for one in value]
    if isinstance(value, dict):
        return {name: told(one) for name, one in value.items()}
    return value


def named_in(value: Any) -> set[str]:
    """The names of the secrets in a rendered value."""
    if isinstance(value, str):
        return {found[1] or found[2] for found in _MARKED.finditer(value)}
    parts: Iterable[Any] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*(named_in(part) for part in parts))


class Source(Struct, frozen=True, omit_defaults=True):
    """Where the value of a secret is: an environment variable, or a file."""

    env: str | None = None
    file: str | None = None


class Vault:
    """The secrets of a flow in this process. Their values are read when they are first needed."""

    def __init__(self, sources: Mapping[str, Source], folder: str = "") -> None:
        self._sources = dict(sources)
        self._folder = folder
        self._found: dict[str, Secret] = {}

    def secret(self, name: str) -> Secret:
        """The secret of that name; raises `SecretMissing` if it is not here, or is too short to be masked."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = Secret(self._read(name), name)
        return found

    def open(self) -> None:
        """Read all that are here already, so that they are masked from the start."""
        for name in self._sources:
            try:
                self.secret(name)
            except SecretMissing:
                continue  # told where it is used, if it is

    def _read(self, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            raise SecretMissing(name, "declare it under `secrets:`")
        if source.file is not None:
            path = Path(self._folder, source.file).expanduser()
            try:
                with path.open("rb") as file:
                    data = file.read(MAX_FILE + 1)
                value = data.decode().rstrip("\r\n")
            except (OSError, UnicodeDecodeError, ValueError) as error:
                raise SecretMissing(name, f"put it into the file {str(path)!r} ({type(error).__name__})") from None
            if len(data) > MAX_FILE:
                raise SecretMissing(name, f"the file {str(path)!r} is larger than {MAX_FILE:,} bytes")
        else:
            variable = source.env or name
            found = os.environ.get(variable)
            if found is None:
                raise SecretMissing(name, f"set the environment variable {variable}")
            value = found
        if len(value) < SHORTEST:
            raise SecretMissing(name, f"it has less than {SHORTEST} characters, which could not be kept out of texts")
        return value

    def reveal(self, value: Any) -> Any:
        """A rendered value with the secrets in it. One that stands alone is given as a `Secret`."""
        if isinstance(value, str):
            alone = _MARKED.fullmatch(value)
            return self.secret(alone[1] or alone[2]) if alone else self.reveal_text(value)
        if isinstance(value, list):
            return [self.reveal(one) for one in value]
        if isinstance(value, dict):
            return {self.reveal_text(name): self.reveal(one) for name, one in value.items()}
        return value

    def reveal_text(self, text: str) -> str:
        """A rendered text with the secrets in it."""
        return _MARKED.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        value: str = self.secret(found[1] or found[2]).reveal()
        if found[1]:
            return value
        return shlex.quote(value)

    def masker(self) -> Masker:
        """Takes the values that are known by now out of a stream."""
        return Masker(one.reveal() for one in self._found.values())

    def mask(self, value: Any) -> Any:
        """The value without the secrets' values in any text of it."""
        masker = self.masker()
        return masker.tree(value) if masker.hides else value


class Masker:
    """Takes values out of a text that comes in pieces, wherever they are cut: what may be the beginning of one is held
    back until more comes, or the end.
    """

    def __init__(self, values: Iterable[str]) -> None:
        texts = {text for value in values for line in _with_lines(value) for text in _forms(line)}
        self._texts = sorted(texts)
        self._longest = max(map(len, texts), default=0)
        self._starts = {text[:SHORTEST] for text in texts}
        self._pattern = re.compile(_pattern(sorted(texts, key=len, reverse=True), SHORTEST))
        self._held = ""

    @property
    def hides(self) -> bool:
        """Whether there is anything to be taken out."""
        return bool(self._texts)

    def feed(self, text: str) -> str:
        """What can be shown of what came so far."""
        if not self._texts:
            return text
        text = self._held + text
        shown: list[str] = []
        place, hold = 0, self._hold(text, 0)
        while (found := self._pattern.search(text, place)) is not None and found.start() < hold:
            shown += (text[place : found.start()], MARK)
            place = found.end()
            if place > hold:
                hold = self._hold(text, place)
        shown.append(text[place:hold])
        self._held = text[hold:]
        return "".join(shown)

    def end(self) -> str:
        """The rest, when nothing more comes."""
        rest, self._held = self._held, ""
        return self._pattern.sub(MARK, rest) if self._texts else rest

    def tree(self, value: Any) -> Any:
        """A value of texts, lists and mappings, without the values."""
        if isinstance(value, str):
            return self._pattern.sub(MARK, value)
        if isinstance(value, list):
            return [self.tree(one) for one in value]
        if isinstance(value, dict):
            return {self.tree(name): self.tree(one) for name, one in value.items()}
        return value

    def _hold(self, text: str, start: int) -> int:
        """From where on the text may be the beginning of a value."""
        size = len(text)
        for place in range(max(start, size - self._longest + 1), size):
            if size - place >= SHORTEST and text[place : place + SHORTEST] not in self._starts:
                continue
            rest = text[place:]
            following = bisect_right(self._texts, rest)  # the first that is longer, if it begins like this
            if following < len(self._texts) and self._texts[following].startswith(rest):
                return place
        return size


def _forms(value: str) -> set[str]:
    """A value as it may stand in what a command or a server says."""
    as_read = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # of what is no UTF-8
    by_shells = {value.replace("'", "'\"'\"'"), value.replace("'", "'\\''")}
    in_urls = {quote(as_read), quote_plus(as_read)}
    return {form for form in (*spellings(value), as_read, *by_shells, *in_urls) if len(form) >= SHORTEST}


def _pattern(texts: list[str], shared: int) -> str:
    """A pattern of texts, the first that fits before the others. It shares their first characters: a key of many lines
    has thousands of forms, and each of them would be tried at each place.
    """
    if shared == 0 or len(texts) == 1:
        return "|".join(map(re.escape, texts))
    by_first: dict[str, list[str]] = {}
    for text in texts:
        by_first.setdefault(text[0], []).append(text[1:])
    return "|".join(f"{re.escape(first)}(?:{_pattern(rest, shared - 1)})" for first, rest in by_first.items())


def _with_lines(value: str) -> list[str]:
    """A secret, and its lines: a key of several lines is often shown line by line."""
    return [value, *(line for line in value.splitlines() if len(line.strip()) >= SHORTEST and line != value)]
