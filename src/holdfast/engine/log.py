"""What Holdfast tells the log: each line is a text for people, and carries the same in parts for machines.

The logger is ``holdfast``. A record has the attribute ``holdfast``, a mapping with ``event`` (such as ``run.failed``),
``run``, and what else belongs to it; a formatter of one's own can write it as JSON.
"""

from __future__ import annotations

import logging
from logging import DEBUG, INFO, WARNING
from typing import Any

__all__ = ["DEBUG", "INFO", "WARNING", "is_told", "tell"]

_log = logging.getLogger("holdfast")
is_told = _log.isEnabledFor


def tell(level: int, event: str, text: str, **parts: Any) -> None:
    """Log an event. The text is a format for the parts."""
    if _log.isEnabledFor(level):
        _log.log(level, "%s", text.format(**parts), extra={"holdfast": {"event": event, **parts}}, stacklevel=2)
