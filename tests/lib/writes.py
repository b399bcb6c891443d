"""What happens around the moment at which a store makes a certain write."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.kernel.model import Write

Make = Callable[[Any], Any]


def around(store: Any, kind: type, act: Callable[[Any, Make], Any]) -> Callable[[Sequence[Write]], Any]:
    """The store's `apply`, with ``act`` in place of each write of this kind: given it, and a function that makes it."""
    apply = store.apply

    def applying(batch: Sequence[Write]) -> Any:
        [only] = batch if len(batch) == 1 else [None]
        return act(only, lambda write: apply([write])) if isinstance(only, kind) else apply(batch)

    return applying
