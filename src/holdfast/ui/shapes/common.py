"""Kinds of values that several of the shapes have."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

MOST = 1_000  # items of a page
Text = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Seq = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=MOST, description="How many at most.")]
Cursor = Annotated[str, Meta(pattern="^[0-9a-f]{24}$", description="What the page before gave as its `next`.")]
Position = Annotated[str, Meta(pattern="^[0-9]{1,15}$", description="What the page before gave as its `next`.")]
Moment = Annotated[datetime, Meta(tz=True, description="A time with its zone, as 2026-01-31T09:30:00Z.")]
At = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0, le=10**9)]
Priority = Annotated[int, Meta(gt=-(2**31), lt=2**31)]
Bound = Annotated[int, Meta(ge=1, le=2**31)]


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs may be begun in how many seconds."""

    count: Bound
    seconds: Annotated[float, Meta(gt=0, le=10**9)]
