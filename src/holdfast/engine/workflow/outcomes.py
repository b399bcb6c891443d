"""How a drive of a workflow can end, and the exception that takes its function apart."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Unwind(BaseException):
    """Takes a workflow's function apart, because its run has to wait, to stop or to end. Not an error: let it pass."""


class Suspended(Struct, frozen=True):
    """Nothing to do but wait."""


class Released(Struct, frozen=True):
    """This process is to stop; any other may go on."""


class Parked(Struct, frozen=True):
    """A person has to act."""

    reason: str


class Cancelled(Struct, frozen=True):
    """The run is given up."""

    why: str | None = None
    undo: bool = False
    by: str | None = None
    force: bool = False


class Continued(Struct, frozen=True):
    """The workflow begins anew, with other arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Aborted(Struct, frozen=True):
    """The store cannot be written, or another worker has the run; it says nothing about the workflow."""

    error: BaseException


class Expired(Struct, frozen=True):
    """The run took longer than it may."""

    seconds: float


class Returned(Struct, frozen=True):
    """The function returned."""

    value: Any


class Raised(Struct, frozen=True):
    """The function raised."""

    error: Exception


Outcome = Suspended | Released | Parked | Cancelled | Continued | Aborted | Expired | Returned | Raised
