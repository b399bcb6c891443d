"""`holdfast rollback` and `resolve`: what a run did to the world is taken back, or said by a person."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from holdfast.cli.codes import BLOCKED, REFUSED
from holdfast.cli.commands.acting import agreed, finish, resume_option
from holdfast.cli.commands.running import check_can_go_on
from holdfast.cli.options import JSON, by_option, command, run_argument, was_given, with_store, yes_option
from holdfast.cli.remedies import told_error
from holdfast.cli.rendering import columns, say, status_text, write_json
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.step import StepFunction
from holdfast.errors import Uncertain, UndoFailed, UndoRefused, UsageError
from holdfast.present.arguments import declare
from holdfast.present.words import one_line
from holdfast.views import RollbackPlan, RollbackReport, RunInfo, StepInfo


@command(
    "rollback",
    "holdfast rollback order-17 --to 4 --plan",
    "holdfast rollback order-17 --to 0 --then cancelled --module orders --yes",
)
@run_argument
@click.option("--to", type=click.IntRange(min=0), required=True, metavar="SEQ", help="The entry to go back to.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be undone, and do nothing.")
@click.option("--force", is_flag=True, help="Pass over undos that fail or are missing, and over uncertain effects.")
@click.option("--then", type=click.Choice(["go-on", "cancelled"]), help="What becomes of the run; else it goes on.")
@yes_option
@by_option
@resume_option
@with_store()
def rollback_command(
    hf: Holdfast,
    run: str,
    to: int,
    only_plan: bool,
    force: bool,
    then: str | None,
    yes: bool,
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Go back to an entry: undo what the run did to the world after it, newest first, and go on from there.

    The plan is shown, and you are asked before anything is undone. The history stays. A worker then does again what
    came after that entry, also of a run that had ended; --then cancelled leaves it.

    An undo that fails stops the rollback: older effects stay, and the run is blocked. The same command again retries
    that undo and continues; with --force it passes over it, and that is recorded.

    The code of the undos is not in the store: name its module by --module. The exit status is 5 if the rollback
    stopped, and 9 if it was refused, or something could not be undone.

    JSON: {"plan": plan} with --plan; else {"run": run, "report": report}, also if it stopped, then with "error".
    """
    handle = hf.get(run)
    declare(handle)
    plan = handle.plan_rollback(to)
    if only_plan:
        write_json({"plan": plan}) if as_json else _show_plan(plan)
        return
    if resume and then == "cancelled":
        raise UsageError("--resume goes on with the run, and --then cancelled leaves it: say one of them")
    if resume:
        check_can_go_on(hf, handle)
    if not force and (refused := next((one for one in plan.steps if one.problem is not None), None)) is not None:
        raise Uncertain(run, refused.problem) if refused.action == "uncertain" else UndoRefused(refused.problem)
    if not as_json:
        _show_plan(plan)
    what_then = _what_then(handle.info(), then, resume=resume)
    agreed(f"Roll back {one_line(run)} to entry {to}{what_then}?", len(plan.steps), "undo", yes=yes)
    try:
        report = handle.rollback(to, then="cancelled" if then == "cancelled" else None, force=force, by=by)
    except UndoFailed as stopped:
        _tell_stopped(handle, stopped, as_json=as_json)
    if not as_json:
        _show_report(report)
    incomplete = bool(report.failed or report.irreversible or report.uncertain)
    finish(
        hf, handle, f"{one_line(run)} is rolled back to entry {report.to}.", {"report": report},
        resume=resume and not incomplete, as_json=as_json,
    )  # fmt: skip
    if incomplete:
        click.get_current_context().exit(REFUSED)


def _tell_stopped(run: Run, stopped: UndoFailed, *, as_json: bool) -> NoReturn:
    """Tell how far a rollback came, and what it stopped at; ends the command."""
    if as_json:
        error = {"type": type(stopped).__name__, "message": told_error(stopped)}
        write_json({"run": run.info(), "report": stopped.report, "error": error})
    else:
        _show_report(stopped.report)
        say(f"✗ {one_line(told_error(stopped))}", err=True)
    click.get_current_context().exit(BLOCKED)


def _what_then(info: RunInfo, then: str | None, *, resume: bool) -> str:
    """What becomes of the run afterwards, for the one who is asked."""
    if then == "cancelled":
        return ", and leave it as cancelled"
    if info.queue is None:  # the program that has its loop goes on with it, or does not
        return ""
    if resume:
        return ", and do it again from there, here"
    hint = "" if then else " (--then cancelled leaves it)"
    return f", and a worker then does it again from there{hint}"


def _show_plan(plan: RollbackPlan) -> None:
    if not plan.steps:
        say("There is nothing to undo.")
        return
    rows = [[one.effect.seq, status_text(_WORDS[one.action]), one.effect.key, one.effect.target] for one in plan.steps]
    columns(("entry", "would be", "step", "target"), rows, right=("entry",))
    for problem in dict.fromkeys(one.problem for one in plan.steps if one.problem is not None):
        say(one_line(problem))  # below, where it is not cut: it ends with what to do


_WORDS = {
    "undo": "undone",
    "irreversible": "left",
    "uncertain": "uncertain",
    "missing": "refused",
    "unreadable": "refused",
}


def _show_report(report: RollbackReport) -> None:
    for word, effects in (
        ("undone", report.undone),
        ("undo_failed", report.failed),
        ("left", report.irreversible),
        ("uncertain", report.uncertain),
        ("pending", report.pending),
    ):
        rows = [[one.seq, status_text(word), one.key, one.target, one.error] for one in effects]
        if rows:
            columns(("entry", "is", "step", "target", ""), rows, right=("entry",))


@command(
    "resolve",
    "holdfast resolve order-17 ship#1 --done --result '\"parcel-9\"'",
    "holdfast resolve order-17 notify#1 --done --result null",
    "holdfast resolve order-17 ship#1 --not-done --by operations",
)
@run_argument
@click.argument("key", metavar="STEP")
@click.option("--done/--not-done", default=None, help="Whether it was done.")
@click.option("--result", type=JSON, help="What it gave, if it was done; null if nothing.")
@by_option
@resume_option
@with_store()
def resolve_command(
    hf: Holdfast,
    run: str,
    key: str,
    done: bool | None,
    result: Any,
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Say what became of an at-most-once step whose process died in the act: it was done, with a result, or not.

    The run goes on with the result as if the step had given it, so --done wants --result; not if --module names what
    declares the step, and that says that it gives None.

    JSON: {"run": run, "resolved": key}.
    """
    if done is None:
        raise UsageError(f"say what became of {key}: --done or --not-done")
    handle = hf.get(run)
    step = _uncertain(handle, key)
    if not done and was_given("result"):
        raise UsageError(f"--result is what {key} gave, and it was not done: say --done, or leave --result out")
    if done and not was_given("result") and not _gives_none(handle, step):
        raise UsageError(f"what did {key} give? say it with --result JSON, and --result null if it gives nothing")
    if resume:
        check_can_go_on(hf, handle)
    handle.resolve(key, done=done, result=result, by=by)
    said = f"{one_line(key)} counts as {'done' if done else 'not done'}."
    finish(hf, handle, said, {"resolved": key}, resume=resume, as_json=as_json)


def _uncertain(run: Run, key: str) -> StepInfo:
    """The step of that key, which has died in the act; raises `UsageError`, which names those that have."""
    found = {step.key: step for step in run.steps() if step.status == "uncertain"}
    if key in found:
        return found[key]
    meant = [one.key for one in found.values() if one.name == key] or list(found)
    which = f"; did you mean {' or '.join(meant)}?" if meant else ", so there is nothing to resolve"
    raise UsageError(f"step {key!r} of run {run.id!r} is not uncertain{which}")


def _gives_none(run: Run, step: StepInfo) -> bool:
    """Whether the step is declared beside the workflow of the run, in this process, and says that it gives None."""
    workflow = run.declared()
    around = getattr(workflow.function, "__globals__", {}) if workflow is not None else {}
    named = [one for one in around.values() if isinstance(one, StepFunction) and one.name == step.name]
    return bool(named) and all(one.result_type is type(None) for one in named)
