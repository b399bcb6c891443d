"""Templates and conditions: Jinja's immutable sandbox, made smaller, and with limits.

A template is parsed and checked (`syntax`), compiled for an environment that reaches plain values only (`sandbox`), and
rendered within limits of size and time (`limits`).

A secret stands alone, as ``{{ secrets.NAME }}`` or ``{{ secrets.NAME | quote }}``. It is rendered as a mark, which
`holdfast.flow.actions.secrets` replaces by the value at the last moment: what is stored, shown or compared never has
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jinja2

from holdfast.errors import TemplateRefused
from holdfast.flow.template.limits import MAX_TEXT, Budget, Refused, Unknown, current, plain, sized, too_long
from holdfast.flow.template.sandbox import environment
from holdfast.flow.template.syntax import Check, Mode, parsed


class Template:
    """A template that was parsed and checked. `render` gives its text or value."""

    __slots__ = ("_body", "_ready", "mode", "shape", "source")

    def __init__(self, source: str, mode: Mode) -> None:
        """Raises `TemplateRefused` for what is no template, or holds what flows may not."""
        self.source = source
        self.mode = mode
        self._ready: Any = None
        try:
            self._body, expression = parsed(source, mode)
            self.shape = Check(source, expression).shape(self._body)
        except Refused as why:
            raise TemplateRefused(None, str(why)) from None
        except jinja2.TemplateSyntaxError as error:
            raise TemplateRefused(None, _lowered(error.message or "it is not a template"), error.lineno) from None
        except (RecursionError, MemoryError, ValueError, OverflowError):
            raise TemplateRefused(None, "it is too long or too deeply nested to be read") from None

    def render(self, values: Mapping[str, Any]) -> Any:
        """What the template gives for these values; raises `TemplateRefused`, or `Unknown` in a dry run."""
        token = current.set(Budget())
        try:
            if self._ready is None:
                self._ready = environment().from_string(self._body)
            return self._run(values)
        except Refused as why:
            raise TemplateRefused(None, str(why)) from None
        except jinja2.TemplateError as error:
            raise TemplateRefused(None, _lowered(error.message or type(error).__name__)) from None
        except Unknown:
            raise
        except RecursionError:
            raise TemplateRefused(None, "it is too deeply nested") from None
        except MemoryError:
            raise TemplateRefused(None, "it needs too much memory") from None
        except Exception as error:  # of operators and filters on values that do not fit: any kind
            raise TemplateRefused(None, _lowered(f"{error}" or type(error).__name__)) from None
        finally:
            current.reset(token)

    def _run(self, values: Mapping[str, Any]) -> Any:
        context = self._ready.new_context(dict(values))
        parts: list[str] = []
        length = 0
        for part in self._ready.root_render_func(context):
            length += len(part)
            if length > MAX_TEXT:
                too_long()
            parts.append(part)
        if "result" not in context.vars:
            return "".join(parts)
        result = context.vars["result"]
        if self.mode == "condition":
            return bool(result)  # of an undefined name: an error
        return sized(plain(result))


def _lowered(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text[:300]


@lru_cache(maxsize=2048)
def template(source: str, mode: Mode) -> Template:
    """The template of a source; the same one for the same source."""
    return Template(source, mode)
