"""Taking a step of a flow back: its rendered undo is stored with its result, and carried out by a rollback."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import ActionFailed
from holdfast.flow.actions.actions import Action, take_back
from holdfast.flow.actions.secrets import Source, Vault


async def run_undo(result: Any) -> None:
    """Carry out the undo of a step, from what the step left; raises if it fails.

    It may take long, so it is done in a thread: a worker's other runs go on meanwhile.
    """
    import asyncio

    await asyncio.to_thread(carry_out, result["undo"])


def carry_out(undo: dict[str, Any]) -> None:
    """Carry out a stored undo."""
    action = msgspec.convert(undo["action"], Action)
    sources = {name: msgspec.convert(source, Source) for name, source in undo["secrets"].items()}
    vault = Vault(sources, undo["folder"])
    vault.open()
    try:
        take_back(action, vault, undo["run"])
    except ActionFailed as failed:
        raise ActionFailed(f"the undo of step {action.step!r} failed: {failed.why}") from None
