"""Making the runs of dead holders ready again."""

from __future__ import annotations

from holdfast.engine.access.client import Client
from holdfast.engine.access.operations import Op, Read
from holdfast.errors import HoldfastError, StoreError
from holdfast.kernel.admission import is_suspect
from holdfast.kernel.model import Change, Filter, Status
from holdfast.kernel.rules import ANY


def recover(client: Client, *, dry_run: bool = False) -> Op[tuple[str, ...]]:
    """Make the runs ready again whose holder died; their ids.

    Not needed for going on: a dead holder's run can be claimed at any time. It makes the list of runs true, and
    finishes rollbacks that were under way. A run whose holders died again and again at the same place is left to
    whoever executes it next, in a process of its own. With ``dry_run`` nothing is done.
    """
    recovered: list[str] = []
    left = yield Read(client.store.find, Filter(orphaned=True), limit=1_000_000)
    driven = [one for one in left if one.queue and one.rollback is None and one.status is not Status.BLOCKED]
    suspects = {one.uid for one in driven if is_suspect(one)}
    orphans = [one for one in left if one.uid not in suspects]
    if dry_run:
        return tuple(record.id for record in orphans)
    for record in orphans:
        run = client.run(record.id, record.uid)
        try:
            lease = yield from run.claim(ANY, rolls=record.status is Status.BLOCKED)
            parked = Change(status=Status.BLOCKED, release=True, reason=record.reason)
            yield from run.release(lease, parked if record.status is Status.BLOCKED else None)
        except StoreError:
            raise
        except HoldfastError:
            continue  # somebody was faster, it had ended, it is parked and says why, or its key is not here
        recovered.append(record.id)
    return tuple(recovered)
