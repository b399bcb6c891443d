"""What a command's exit status means: one table, for the help, the documents, and every error of the tree."""

from __future__ import annotations

from typing import NamedTuple

from holdfast import errors

DONE, UNEXPECTED, USAGE, WAITING, FAILED, BLOCKED, CLAIMED, DAMAGED, NOT_FOUND = range(9)
REFUSED, STORE, CANCELLED, PROBLEMS = range(9, 13)
INTERRUPTED, TERMINATED = 130, 143


class ExitCode(NamedTuple):
    """One exit status: what it means, and the errors that lead to it (with all below them in the tree)."""

    code: int
    name: str
    meaning: str
    errors: tuple[type[Exception], ...] = ()


CODES = (
    ExitCode(DONE, "done", "it was done; of a run: it is completed"),
    ExitCode(UNEXPECTED, "unexpected", "something that nobody foresaw, in your code or in Holdfast; see --traceback"),
    ExitCode(USAGE, "usage", "the command, an option or an argument is wrong; see --help", (errors.UsageError,)),
    ExitCode(WAITING, "waiting", "the run waits for an answer, a moment or a message", (errors.TimedOut,)),
    ExitCode(
        FAILED,
        "failed",
        "the run failed",
        (errors.StepFailed, errors.StepTimeout, errors.DeadlinePassed, errors.FlowFailed, errors.ActionFailed),
    ),
    ExitCode(
        BLOCKED,
        "blocked",
        "the run is parked until a person acts",
        (errors.RunBlocked, errors.NonDeterminism, errors.Uncertain),
    ),
    ExitCode(CLAIMED, "claimed", "another process holds the run", (errors.Claimed, errors.LeaseLost)),
    ExitCode(
        DAMAGED,
        "damaged",
        "what is stored does not add up",
        (errors.RunDamaged, errors.StoreDamaged, errors.BackupDamaged),
    ),
    ExitCode(
        NOT_FOUND,
        "not found",
        "there is no such run, entry, question, store or file",
        (errors.RunNotFound, errors.NoCheckpoint, errors.ScheduleNotFound, errors.StoreNotFound, FileNotFoundError),
    ),
    ExitCode(
        REFUSED,
        "refused",
        "what is asked for does not fit: an answer, an id that is taken, a run that has ended or was moved",
        (
            errors.RunError,
            errors.Moved,
            errors.ScheduleMoved,
            errors.ValueRefused,
            errors.UndoRefused,
            errors.KeyMissing,
            errors.SecretMissing,
        ),
    ),
    ExitCode(STORE, "store", "the store cannot be used now: full, busy, not to be written", (errors.StoreError,)),
    ExitCode(CANCELLED, "cancelled", "the run was cancelled", (errors.RunCancelled,)),
    ExitCode(
        PROBLEMS,
        "problems",
        "a flow, a graph, or what the doctor looked at has problems, which are named",
        (errors.FlowInvalid, errors.GraphInvalid, errors.TemplateRefused),
    ),
    ExitCode(INTERRUPTED, "interrupted", "Ctrl-C; a run that was driven here can be resumed"),
    ExitCode(TERMINATED, "terminated", "SIGTERM; a run that was driven here can be resumed"),
)

BY_STATUS = {
    "completed": DONE,
    "failed": FAILED,
    "cancelled": CANCELLED,
    "blocked": BLOCKED,
    "waiting": WAITING,
    "ready": WAITING,
    "running": CLAIMED,
    "away": REFUSED,
}

_BY_ERROR = {error: code.code for code in CODES for error in code.errors}


def code_of(error: BaseException) -> int:
    """The exit status for an error: that of the nearest class above it that has one."""
    own = getattr(error, "exit_code", None)
    if isinstance(own, int):
        return own
    return next((_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR), UNEXPECTED)


def table() -> list[str]:
    """The exit statuses as lines of the help."""
    return [f"{code.code:>3}  {code.name:<12} {code.meaning}" for code in CODES]
