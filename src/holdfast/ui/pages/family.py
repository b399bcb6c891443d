"""Where a run comes from and what came of it: its origin and parent, its forks and children, as a tree."""

from __future__ import annotations

from msgspec import Struct
from starlette.responses import Response

from holdfast.ui import shapes
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.run import frame, head
from holdfast.views import RunInfo

MOST = 200  # runs of one tree


class Kin(Struct, frozen=True):
    """A run in the tree, and how it is related to the one above it. ``info`` is None if it was deleted."""

    id: str
    how: str
    info: RunInfo | shapes.RunView | None
    parts: tuple[Kin, ...] = ()
    here: bool = False


class Tree(Struct, frozen=True):
    """A family; ``cut``, if it is larger than what is shown."""

    root: Kin
    cut: bool


class Walk:
    """One look at a family."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._left = MOST
        self.cut = False

    def _family(self, id: str) -> shapes.Family:
        found: shapes.Family = self._ask.perform("show_family", run=id)
        return found

    def tree(self, id: str) -> Tree:
        """The family of a run: those that it comes from above it, those that come from it below."""
        family = self._family(id)
        here = Kin(id, "", family.run, self._below(family), here=True)
        while above := self._above(family):
            for origin, how in above:
                here = Kin(origin, "", self._ask.info(origin), (Kin(here.id, how, here.info, here.parts, here.here),))
            self._left -= len(above)
            if here.info is None or self._left <= 0:
                self.cut = here.info is not None
                break
            family = self._family(here.id)
        return Tree(here, self.cut)

    def _above(self, family: shapes.Family) -> list[tuple[str, str]]:
        """The runs that it comes from, nearest first, each with how."""
        if family.forked_from:
            return [(point.run, f"forked at {point.seq}") for point in reversed(family.forked_from)]
        return [(family.parent.id, "child")] if family.parent is not None else []

    def _below(self, family: shapes.Family) -> tuple[Kin, ...]:
        found: list[Kin] = []
        kin = [(one, "child") for one in reversed(family.children)]
        kin += [
            (one, f"forked at {one.forked_from.seq}" if one.forked_from else "fork") for one in reversed(family.forks)
        ]
        for one, how in kin:
            if self._left <= 0:
                self.cut = True
                break
            self._left -= 1
            found.append(Kin(one.id, how, one, self._below(self._family(one.id))))
        return tuple(found)


def page(ask: Ask) -> Response:
    """The family of a run."""
    top = head(ask)
    tree = Walk(ask).tree(top.info.id)
    return ask.render("family.html", title=f"{top.info.id}: family", tab="family", tree=tree, **frame(ask, top))
