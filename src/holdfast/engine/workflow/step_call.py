"""One call of a step: where it is made, under which key, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.kernel.journal import Data

if TYPE_CHECKING:
    from holdfast.engine.workflow.declare import StepFunction
    from holdfast.engine.workflow.execution import Execution
    from holdfast.engine.workflow.scope import Scope


class StepCall:
    """What every function on the way of a step needs to know of the call."""

    __slots__ = ("args", "digest", "execution", "key", "kwargs", "n", "named", "scope", "step", "trees")

    def __init__(
        self,
        scope: Scope,
        key: str,
        n: int | None,
        step: StepFunction[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.scope = scope
        self.execution: Execution = scope.execution
        self.key = key
        self.n = n  # its number among the calls of its scope; None if its key was given
        self.step = step
        self.args = args
        self.kwargs = kwargs
        self.trees: list[Any] | None = None
        self.named: dict[str, Any] = {}
        self.digest: str | None = None

    def describe(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as they are stored; also sets their digest. Raises what keeps them from being stored."""
        if self.trees is None:
            self.trees, self.named, self.digest = self.execution.describe(self.step, self.args, self.kwargs)
        return self.trees, self.named

    def entry(self) -> Data:
        """What the entries about it begin with."""
        return self.step.entry(self.key, self.n, self.digest)
