"""The entries that inbox items become."""

from __future__ import annotations

from holdfast.kernel.fold import Fold, question_id
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Item, Kind


def _lines(uid: str, fold: Fold, item: Item, data: Data) -> list[tuple[str, Data]]:
    """The entries that an inbox item becomes. What was accepted and no longer fits is `Kind.LATE`: it is on record."""
    if item.kind in ("answer", "decline"):
        asked = fold.questions.get(data["question"])
        if asked is not None and question_id(uid, asked) == data["id"]:
            kind = Kind.ANSWERED if item.kind == "answer" else Kind.DECLINED
            return [(kind, {name: value for name, value in data.items() if name != "id"})]
        return [(Kind.LATE, data)]
    if item.kind == "mark":
        return [(Kind.MARKED if data["key"] not in fold.steps else Kind.LATE, data)]
    return [(Kind.RECEIVED, data)] if item.kind == "message" else []


def preview(uid: str, fold: Fold, item: Item, data: Data) -> list[tuple[str, Data]]:
    """Count an inbox item as if it were in the journal already; the entries that it becomes."""
    lines = _lines(uid, fold, item, data)
    for kind, line in lines:
        fold.add(fold.seq + 1, kind, item.at, line)
    return lines
