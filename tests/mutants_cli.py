"""The mutants of the command line. See mutants_table.py."""

from mutants_table import Mutant

CLI = "src/holdfast/cli"
PRESENT = "src/holdfast/present"
TESTS = "tests/cli"

MUTANTS: list[Mutant] = [
    # Nothing is done unasked, and nothing is made by a mistyped name
    Mutant(
        "cli-asks-nobody",
        f"{CLI}/commands/acting.py",
        "    if yes:\n        return\n",
        "    return\n",
        f'{TESTS}/test_acting.py -k "previewed or planned"',
    ),
    Mutant(
        "cli-makes-a-mistyped-store",
        f"{CLI}/options.py",
        "not os.path.exists(path) and (url is None or not make)",
        "False",
        f'{TESTS}/test_keeping.py -k "wrong_stores or default_store"',
    ),
    Mutant(
        "cli-takes-a-secret-from-the-command-line",
        f"{PRESENT}/arguments.py",
        "    return Secret.from_env(given)",
        "    return Secret(given)",
        f'{TESTS}/test_running.py -k "secret"',
    ),
    # A run is left so that it can be resumed
    Mutant(
        "cli-dies-of-sigterm",
        f"{CLI}/session.py",
        "before = signal.signal(signal.SIGTERM, end)",
        "before = signal.getsignal(signal.SIGTERM)",
        f'{TESTS}/test_terminal.py -k "signal_without"',
    ),
    Mutant(
        "cli-waits-for-what-another-process-drives",
        f"{CLI}/session.py",
        "if not infos or infos[0].status in (Status.BLOCKED, Status.RUNNING):",
        "if not infos or infos[0].status in (Status.BLOCKED,):",
        f'{TESTS}/test_running.py -k "somebody_holds" --timeout 20',
    ),
    Mutant(
        "cli-does-not-know-the-flow-of-a-run",
        f"{PRESENT}/arguments.py",
        "        import holdfast.flow  # noqa: F401",
        "        pass",
        f'{TESTS}/test_graphs_and_flows.py -k "knows_nothing"',
    ),
    Mutant(
        "cli-asks-only-its-own-run",
        f"{PRESENT}/questions.py",
        "for one in open_runs(hf, run) for question in one.questions()]",
        "for one in [run] for question in one.questions()]",
        f'{TESTS}/test_acting.py -k "child"',
    ),
    # What is shown is true, and harmless
    Mutant(
        "cli-lets-control-characters-through",
        f"{PRESENT}/words.py",
        'return "".join(char if char.isprintable() else " " for char in str(value))',
        "return str(value)",
        f'{TESTS}/test_looking.py {TESTS}/test_parts.py -k "control or harmless"',
    ),
    Mutant(
        "cli-prints-between-json",
        f"{CLI}/session.py",
        "with redirect_stdout(sys.stderr):\n            yield",
        "yield",
        f'{TESTS}/test_running.py -k "json_gives"',
    ),
    Mutant(
        "cli-tells-again-what-was-done-before",
        f"{PRESENT}/follower.py",
        "            if entry.seq > self._shown:",
        "            if True:",
        f'{TESTS}/test_running.py -k "resume_goes"',
    ),
    Mutant(
        "cli-misses-the-last-entries",
        f"{CLI}/progress.py",
        "            try:\n                self._look()\n            finally:\n                self._view.stop()",
        "            self._view.stop()",
        f'{TESTS}/test_running.py -k "json_gives or asks_waits"',
    ),
    Mutant(
        "cli-keeps-the-streams",
        f"{CLI}/live.py",
        "            self._printed.end()\n",
        "",
        f'{TESTS}/test_terminal.py -k "printed_stands"',
    ),
    Mutant(
        "cli-takes-what-is-out-of-bounds",
        f"{CLI}/prompts.py",
        "        if not (problems := _problems(field, value)):\n            return value",
        "        return value",
        f'{TESTS}/test_parts.py -k "out_of_bounds"',
    ),
    # The exit status tells what happened
    Mutant(
        "cli-forgets-what-went-wrong-with-one",
        f"{CLI}/commands/bulk.py",
        "            code = code or code_of(error)\n",
        "",
        f'{TESTS}/test_acting.py -k "wrong_with_one or cancel_one"',
    ),
    Mutant(
        "cli-hides-what-was-not-undone",
        f"{CLI}/commands/repair.py",
        "    if incomplete:\n        click.get_current_context().exit(REFUSED)\n",
        "",
        f'{TESTS}/test_acting.py -k "leaves_something"',
    ),
    Mutant(
        "cli-shows-a-traceback-for-a-closed-pipe",
        f"{CLI}/__init__.py",
        "        except BrokenPipeError:",
        "        except ZeroDivisionError:",
        f'{TESTS}/test_help.py -k "nobody_reads"',
    ),
    # What the engine tells the command line
    Mutant(
        "activity-counts-branches-that-wait",
        "src/holdfast/engine/run/outputs.py",
        " and not isinstance(branch.exception(), Unwind)",
        "",
        'tests/workflows/test_activity.py -k "waits"',
    ),
    Mutant(
        "backup-of-some-forgets-their-origins",
        "src/holdfast/engine/admin/backup.py",
        "wanted |= {record.uid, *(link.uid for link in record.lineage)}",
        "wanted |= {record.uid}",
        'tests/workflows/test_activity.py -k "backup"',
    ),
    Mutant(
        "cli-dies-with-its-reader",
        f"{CLI}/progress.py",
        "        except BrokenPipeError:  # the run goes on all the same",
        "        except ZeroDivisionError:",
        f'{TESTS}/test_hostile.py -k "nobody_reads" --timeout 60',
    ),
    Mutant(
        "cli-lets-errors-move-the-terminal",
        f"{CLI}/__init__.py",
        "text = printable(told_error(error)",
        "text = str(told_error(error)",
        f'{TESTS}/test_hostile.py -k "differences_and_errors"',
    ),
    Mutant(
        "cli-hides-questions-behind-a-bad-run",
        f"{CLI}/commands/lists.py",
        "except (RunError, KeyMissing) as error:",
        "except ZeroDivisionError as error:",
        f'{TESTS}/test_hostile.py -k "one_bad_run"',
    ),
    Mutant(
        "cli-mistakes-an-id-for-an-option",
        f"{PRESENT}/remedies.py",
        'words = [name, *options, "--", *arguments]',
        "words = [name, *options, *arguments]",
        f'{TESTS}/test_hostile.py -k "look_like_something_else"',
    ),
]
