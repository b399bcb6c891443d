"""The mutants of durable functions: replay, effects, waits, branches, children, and workers. See mutants_table.py."""

from mutants_table import FILES, MEMORY, SQLITE, Mutant

ENGINE = "src/holdfast/engine"
WORKFLOWS = "tests/workflows"
WORKERS = "tests/processes/test_workers.py"

MUTANTS: list[Mutant] = [
    # What was done is not done again, and the code must still do what was recorded
    Mutant(
        "replay-ignores-what-was-recorded",
        f"{ENGINE}/execution.py",
        "found: Step | Failed | None = fold.steps.get(key) or fold.failures.get(key)",
        "found: Step | Failed | None = None",
        f'{WORKFLOWS}/test_steps.py -k "replay_runs_nothing"',
    ),
    Mutant(
        "replay-forgets-errors",
        f"{ENGINE}/execution.py",
        "found: Step | Failed | None = fold.steps.get(key) or fold.failures.get(key)",
        "found: Step | Failed | None = fold.steps.get(key)",
        f'{WORKFLOWS}/test_steps.py -k "error_is_kept"',
    ),
    Mutant(
        "step-takes-any-arguments",
        f"{ENGINE}/replay.py",
        "if found.digest != digest and found.digest is not None and digest is not None:",
        "if False:",
        f'{WORKFLOWS}/test_called_differently.py -k "other_arguments_than_recorded"',
    ),
    Mutant(
        "uncertain-step-takes-any-arguments",
        f"{ENGINE}/execution.py",
        "            check_same(self, key, step.name, recorded, digest, (trees, named))\n",
        "",
        f'{WORKFLOWS}/test_called_differently.py -k "died_in_the_act"',
    ),
    Mutant(
        "inserted-step-unseen",
        f"{ENGINE}/execution.py",
        "        if self.replays and n is not None:\n",
        "        if False:\n",
        f'{WORKFLOWS}/test_versions.py -k "no_longer_fits"',
    ),
    Mutant(
        "left-out-step-unseen",
        f"{ENGINE}/driving.py",
        "if (left := leftover(execution)) is not None:",
        'if (left := "") != "":',
        f'{WORKFLOWS}/test_versions.py -k "no_longer_fits or left_out"',
    ),
    Mutant(
        "patched-for-old-runs",
        f"{ENGINE}/calls.py",
        "execution.patches[name] = False",
        "execution.patches[name] = True",
        f'{WORKFLOWS}/test_versions.py -k "keep_the_old_way"',
    ),
    Mutant(
        "patched-for-nobody",
        f"{ENGINE}/calls.py",
        "        elif is_replaying(execution):\n",
        "        elif True:\n",
        f'{WORKFLOWS}/test_versions.py -k "keep_the_old_way"',
    ),
    Mutant(
        "version-ignored",
        f"{ENGINE}/define.py",
        " if known == version]",
        "]",
        f'{WORKFLOWS}/test_versions.py -k "keeps_its_version or version_is_missing"',
    ),
    Mutant(
        "replay-in-any-order",
        f"{ENGINE}/tasks.py",
        "        if len(self.tasks) > 1:\n            turn: ",
        "        if False:\n            turn: ",
        f'{WORKFLOWS}/test_replay_order.py -k "ended_last"',
    ),
    # Tasks, and the gate of a resumed run
    Mutant(
        "tasks-numbered-by-creation",
        f"{ENGINE}/scope.py",
        "            name = name_of()\n",
        '            name = ""\n',
        f'{WORKFLOWS}/test_tasks.py -k "of_another_name"',
    ),
    Mutant(
        "wait-for-has-a-scope",
        f"{ENGINE}/naming.py",
        "    return frame is not None and frame.f_code is _WAIT_FOR\n",
        "    return False\n",
        f'{WORKFLOWS}/test_tasks.py -k "with_a_task_and_without"',
    ),
    Mutant(
        "no-gate",
        f"{ENGINE}/execution.py",
        "Gate(self) if self.replays else None",
        "None",
        f'{WORKFLOWS}/test_tasks.py -k "whatever_is_called"',
    ),
    Mutant(
        "gate-open-for-what-cannot-wait",
        f"{ENGINE}/gate.py",
        "            self._is_needed()\n            if self._is_known(attempt):\n",
        "            self._is_needed()\n            if False:\n",
        f'{WORKFLOWS}/test_tasks.py -k "whatever_is_called and at_once"',
    ),
    Mutant(
        "gate-open-after-a-retry",
        f"{ENGINE}/gate.py",
        "            return not self._is_known(attempt)\n",
        "            return True\n",
        f'{WORKFLOWS}/test_tasks.py -k "retry_with_other_tasks"',
    ),
    Mutant(
        "gate-lets-notes-through",
        f"{ENGINE}/gate.py",
        "            if not self._is_needed() and not self._deferred:\n",
        "            if True:\n",
        f'{WORKFLOWS}/test_tasks.py -k "whatever_is_called"',
    ),
    Mutant(
        "gate-forgets-timers",
        f"{ENGINE}/tasks.py",
        "        elif outside or timer is not None:\n",
        "        elif outside:\n",
        "tests/model/test_tasks.py -k correct",
    ),
    Mutant(
        "gate-waits-for-losers",
        f"{ENGINE}/gate.py",
        "            if key.startswith(lost) or is_moot(fold, key):\n",
        "            if False:\n",
        "tests/model/test_tasks.py -k correct",
    ),
    Mutant(
        "accepted-is-forgotten",
        f"{ENGINE}/gate.py",
        " if key not in fold.accepted}",
        "}",
        f'{WORKFLOWS}/test_tasks.py -k "person_may_accept"',
    ),
    # Effects
    Mutant(
        "no-intent",
        f"{ENGINE}/acts.py",
        (
            "    if written is None:\n"
            "        written = yield from _intend(execution, intent)\n"
            '    return (yield from attempts(execution, scope, {"key": key, "intent": written}, step, args, kwargs))\n'
        ),
        "    return (yield from attempts(execution, scope, data, step, args, kwargs))\n",
        f'{WORKFLOWS}/test_effects.py -k "effects_tell"',
    ),
    Mutant(
        "acts-before-the-intent-lasts",
        f"{ENGINE}/acts.py",
        '    return (yield from execution.write([(Kind.INTENDED, intent)], f"arguments of {key}"))\n',
        (
            "    yield from ()\n"
            '    return execution.submit([(Kind.INTENDED, intent)], f"arguments of {key}").write.entries[0].seq\n'
        ),
        f'{WORKFLOWS}/test_effects.py -k "asks_a_person_after_a_crash"',
    ),
    Mutant(
        "at-most-once-again-after-a-crash",
        f"{ENGINE}/acts.py",
        "    if key in fold.intents:\n        done = ",
        "    if False:\n        done = ",
        f'{WORKFLOWS}/test_effects.py -k "asks_a_person_after_a_crash"',
    ),
    Mutant(
        "at-most-once-again-after-an-error",
        f"{ENGINE}/acts.py",
        ', "uncertain": True})])',
        "})])",
        f'{WORKFLOWS}/test_effects.py -k "raises_is_uncertain"',
    ),
    Mutant(
        "lease-not-confirmed-before-the-act",
        f"{ENGINE}/acts.py",
        "                yield from execution.unharmed(_ask(confirm))\n",
        "",
        f'{WORKFLOWS}/test_effects.py -k "lease_is_confirmed"',
    ),
    Mutant(
        "check-asked-while-another-process-acts",
        f"{ENGINE}/acts.py",
        "    return any(one.worker == worker and one.running for one in engine.store.workers())\n",
        "    return False\n",
        f'{WORKFLOWS}/test_effects.py -k "may_still_be_acting"',
    ),
    Mutant(
        "check-asked-while-this-process-acts",
        f"{ENGINE}/acts.py",
        "        return (execution.run.uid, key) in engine.acting\n",
        "        return False\n",
        f'{WORKFLOWS}/test_effects.py -k "takes_its_own_run_back"',
    ),
    Mutant(
        "same-idempotency-key-after-a-rollback",
        f"{ENGINE}/acts.py",
        'f"{record.uid}/{_era(execution, key)}/{key}"',
        'f"{record.uid}/{key}"',
        f'{WORKFLOWS}/test_effects.py -k "rolled_back_has_another"',
    ),
    Mutant(
        "another-idempotency-key-after-a-crash",
        f"{ENGINE}/acts.py",
        'intent = {**intent, "era": era}',
        "pass",
        f'{WORKFLOWS}/test_effects.py -k "not_rolled_back_keeps_its_key"',
    ),
    Mutant(
        "long-step-not-seen-as-started",
        f"{ENGINE}/watch.py",
        "                    if since <= long:\n",
        "                    if False:\n",
        f'{WORKFLOWS}/test_effects.py -k "takes_long"',
    ),
    Mutant(
        "transactional-step-in-two-transactions",
        "src/holdfast/stores/sqlite.py",
        "            before = self._db.total_changes\n            outcome = self._make(write)\n",
        (
            '            self._db.execute("COMMIT")\n'
            '            self._db.execute("BEGIN IMMEDIATE")\n'
            "            before = self._db.total_changes\n"
            "            outcome = self._make(write)\n"
        ),
        f'{WORKFLOWS}/test_transactional.py -k "crash_at_any_point"',
    ),
    # Attempts
    Mutant(
        "attempts-uncounted",
        f"{ENGINE}/attempts.py",
        "        attempt = before.count\n",
        "",
        f'{WORKFLOWS}/test_retries.py -k "survives_a_crash"',
    ),
    Mutant(
        "attempts-uncounted-after-a-crash",
        f"{ENGINE}/attempts.py",
        "        attempt = before.count\n",
        "        attempt = before.count if execution.lease.seq > execution.began_at else 0\n",
        f'{WORKFLOWS}/test_retries.py -k "survives_a_crash"',
    ),
    Mutant(
        "timeout-ignored",
        f"{ENGINE}/attempts.py",
        "        if step.timeout is not None:\n",
        "        if False:\n",
        f'{WORKFLOWS}/test_retries.py -k "after_its_timeout and memory"',
    ),
    Mutant(
        "wrong-use-tried-again",
        f"{ENGINE}/attempts.py",
        " and not lasting\n",
        "\n",
        f'{WORKFLOWS}/test_bad_input.py -k "not_tried_again"',
    ),
    Mutant(
        "every-error-tried-again",
        f"{ENGINE}/attempts.py",
        " and isinstance(error, step.retry.on)",
        "",
        f'{WORKFLOWS}/test_retries.py -k "only_what_is_asked_for"',
    ),
    Mutant(
        "errors-made-by-importing",
        f"{ENGINE}/failures.py",
        "    found: Any = sys.modules.get(module)\n",
        (
            "    with suppress(ImportError, ValueError):\n"
            "        __import__(module)\n"
            "    found: Any = sys.modules.get(module)\n"
        ),
        "tests/engine/test_failures.py",
    ),
    # Taking a function apart
    Mutant(
        "acts-while-it-is-taken-apart",
        f"{ENGINE}/scope.py",
        "        if self.execution.outcome is not None or self.is_over:\n",
        "        if self.is_over:\n",
        f'{WORKFLOWS}/test_async.py -k "no_durable_harm and memory"',
    ),
    Mutant(
        "loser-goes-on",
        f"{ENGINE}/scope.py",
        "        if self.execution.outcome is not None or self.is_over:\n",
        "        if self.execution.outcome is not None:\n",
        f'{WORKFLOWS}/test_branches.py -k "losing_branch_is_stopped and memory"',
    ),
    Mutant(
        "quiet-too-soon",
        f"{ENGINE}/quiet.py",
        "_waits_in_asyncio(task, tasks) else OUTSIDE",
        "_waits_in_asyncio(task, tasks) else PEERS",
        f'{WORKFLOWS}/test_async.py -k "busy_outside"',
    ),
    Mutant(
        "never-quiet",
        f"{ENGINE}/quiet.py",
        "return PEERS if _is_of_peers(future, tasks)",
        "return OUTSIDE if _is_of_peers(future, tasks)",
        f'{WORKFLOWS}/test_async.py -k "waits_gives_up_the_lease and wait"',
    ),
    # Races
    Mutant(
        "winner-not-journaled",
        f"{ENGINE}/races.py",
        (
            'lines = forget(execution, losers, (Kind.DONE, {"key": self.key, "n": self.n, "result": winner}))\n'
            "        yield from execution.in_turn((yield from execution.write(lines)))\n"
        ),
        "forget(execution, losers, (Kind.DONE, {}))\n        yield from ()\n",
        f'{WORKFLOWS}/test_branches.py -k "winner_is_the_same"',
    ),
    Mutant(
        "question-of-a-loser-stays-open",
        f"{ENGINE}/races.py",
        "return [(kind, data), *closing]",
        "return [(kind, data)]",
        f'{WORKFLOWS}/test_branches.py -k "losers_question or question_of_a_loser"',
    ),
    # Waits and messages
    Mutant(
        "timer-not-recorded",
        f"{ENGINE}/waits.py",
        '        yield from execution.write([(Kind.TIMER, {"key": key, "n": n, "until": until})])\n',
        "        yield from ()\n",
        f'{WORKFLOWS}/test_sleep_and_messages.py -k "survives_its_process"',
    ),
    Mutant(
        "message-received-twice",
        f"{ENGINE}/waits.py",
        '"message": message.seq, ',
        "",
        f'{WORKFLOWS}/test_sleep_and_messages.py -k "in_order_and_by_topic"',
    ),
    Mutant(
        "message-taken-in-twice",
        f"{ENGINE}/pauses.py",
        "        items = [item for item in items if item.key not in lease.took]\n",
        "",
        f'{WORKFLOWS}/test_sleep_and_messages.py -k "take_each_message_once"',
    ),
    Mutant(
        "message-lost-by-a-rollback",
        "src/holdfast/fold.py",
        "        self._reset()\n        for seq, kind, at, data in self.log:\n",
        (
            "        taken = self.taken\n"
            "        self._reset()\n"
            "        self.taken = taken\n"
            "        for seq, kind, at, data in self.log:\n"
        ),
        f'{WORKFLOWS}/test_sleep_and_messages.py -k "rollback_gives_back"',
    ),
    Mutant(
        "message-sent-again-after-a-crash",
        f"{ENGINE}/calls.py",
        'unique = f"{own.record.uid}/{scope.execution.era(own.fold.generation)}/{key}"',
        "unique = engine.store.clock.random_bytes(12).hex()",
        f'{WORKFLOWS}/test_sleep_and_messages.py -k "sends_it_once"',
    ),
    # Children
    Mutant(
        "child-made-before-it-is-journaled",
        f"{ENGINE}/children.py",
        '        yield from execution.write([(Kind.CHILD, {**data, "reversible": True})])\n',
        (
            "        yield from _drive(execution, workflow, given, id, key, depth)\n"
            '        yield from execution.write([(Kind.CHILD, {**data, "reversible": True})])\n'
        ),
        f'{WORKFLOWS}/test_children.py -k "crash_anywhere and memory"',
    ),
    Mutant(
        "parent-not-told",
        f"{ENGINE}/endings.py",
        "        yield from children.notify(run, lease)\n        yield from run._let_go(lease, released)\n",
        "        yield from run._let_go(lease, released)\n",
        f'{WORKFLOWS}/test_children.py -k "with_other_holders"',
    ),
    Mutant(
        "cancel-swallowed-by-the-end-of-a-child",
        f"{ENGINE}/endings.py",
        "Change(final=True) if is_child else released",
        "Change() if is_child else released",
        f'{WORKFLOWS}/test_children.py -k "acknowledged_before_the_end"',
    ),
    Mutant(
        "parent-not-told-after-a-crash",
        f"{ENGINE}/run.py",
        "                yield from children.notify(self, lease)\n                raise RunEnded",
        "                raise RunEnded",
        f'{WORKFLOWS}/test_children.py -k "takes_over_an_ended_child"',
    ),
    Mutant(
        "cancel-spares-children-that-wait",
        f"{ENGINE}/wishes.py",
        "        yield from _cancel_parts(run, lease, wish)\n",
        "",
        f'{WORKFLOWS}/test_cancel.py -k "children_that_wait"',
    ),
    Mutant(
        "cancel-spares-children-that-run",
        f"{ENGINE}/execution.py",
        "for part in self.engine.watch.parts_of(self):",
        "for part in []:",
        f'{WORKFLOWS}/test_cancel.py -k "in_its_parents_place"',
    ),
    # Rollback, retry and fork
    Mutant(
        "undone-oldest-first",
        "src/holdfast/fold.py",
        "key=lambda mark: mark.settled, reverse=True)",
        "key=lambda mark: mark.settled)",
        f'{WORKFLOWS}/test_rollback.py -k "preview_tells"',
    ),
    Mutant(
        "undone-by-their-beginning",
        "src/holdfast/fold.py",
        "key=lambda mark: mark.settled, reverse=True)",
        "key=lambda mark: mark.seq, reverse=True)",
        f'{WORKFLOWS}/test_rollback.py -k "whenever_it_was_begun"',
    ),
    Mutant(
        "undo-tried-once",
        f"{ENGINE}/rollback.py",
        'tries = 1 + int(mark.data.get("undo_retries", 0))',
        "tries = 1",
        f'{WORKFLOWS}/test_rollback.py -k "undos_are_tried_again"',
    ),
    Mutant(
        "rollback-on-failure-not-resumed",
        f"{ENGINE}/run.py",
        "            if record.rollback is not None:\n                rollback.tell",
        "            if False:\n                rollback.tell",
        f'{WORKFLOWS}/test_rollback.py -k "crash_in_its_middle and memory"',
    ),
    Mutant(
        "rollback-passes-over-an-undo-that-failed",
        f"{ENGINE}/rollback.py",
        "            if not rolling.force:\n",
        "            if False:\n",
        f'{WORKFLOWS}/test_rollback.py -k "undos_are_tried_again"',
    ),
    Mutant(
        "rollback-of-what-is-uncertain",
        f"{ENGINE}/rollback.py",
        "    if not force:\n        for mark in",
        "    if False:\n        for mark in",
        'tests/engine/test_rollback.py -k "uncertain_or_raised"',
    ),
    Mutant(
        "force-tries-again-what-failed",
        f"{ENGINE}/rollback.py",
        'elif rolling.force and mark.status == "undo_failed":',
        "elif False:",
        'tests/engine/test_rollback.py -k "passes_over_it_and_records"',
    ),
    Mutant(
        "fork-of-what-is-being-undone",
        f"{ENGINE}/fork.py",
        "    if point > to:\n",
        "    if False:\n",
        'tests/engine/test_rollback.py -k "allowed_in_the_middle"',
    ),
    Mutant(
        "undo-read-without-annotations",
        f"{ENGINE}/undo_call.py",
        "        known = [kind for kind in (*types, self._state) if kind is not None]\n",
        "        known: list[Any] = []\n",
        'tests/engine/test_undos_elsewhere.py -k "annotations and memory"',
    ),
    Mutant(
        "undo-with-another-key-each-time",
        f"{ENGINE}/rollback.py",
        'f"{run.uid}/{mark.seq}/undo"',
        'f"{run.uid}/{mark.seq}/undo/{run._store.clock.now()}"',
        'tests/engine/test_undos_elsewhere.py -k "idempotency_key and memory"',
    ),
    Mutant(
        "effect-broken-off-by-a-sibling",
        f"{ENGINE}/attempts.py",
        "        if step.has_intent and step.is_async:\n",
        "        if False:\n",
        f'{WORKFLOWS}/test_effects_in_flight.py -k "awaited_and_undone and memory"',
    ),
    Mutant(
        "effect-that-timed-out-counts-as-not-done",
        f"{ENGINE}/attempts.py",
        "        if step.has_intent and _is_uncertain(step, error):\n",
        "        if False:\n",
        f'{WORKFLOWS}/test_effects_in_flight.py -k "timed_out and memory"',
    ),
    Mutant(
        "rollback-on-failure-forgets-the-failure",
        f"{ENGINE}/rollback.py",
        "        if rolling.failure is not None:\n",
        "        if False:\n",
        f'{WORKFLOWS}/test_rollback.py -k "declared_so"',
    ),
    Mutant(
        "fork-ignores-changed-results",
        "src/holdfast/fold.py",
        'for key, result in data.get("results", {}).items():',
        "for key, result in ():",
        f'{WORKFLOWS}/test_forks.py -k "changed_results"',
    ),
    Mutant(
        "fork-ignores-changed-input",
        "src/holdfast/fold.py",
        '            self.input = {**self.input, **data["input"]}\n',
        "            pass\n",
        f'{WORKFLOWS}/test_forks.py -k "changed_input"',
    ),
    Mutant(
        "retry-forgets-what-was-caught",
        "src/holdfast/fold.py",
        '        for key in data["keys"]:\n            self._forget(key)\n',
        "        for key in list(self.failures):\n            self._forget(key)\n",
        f'{WORKFLOWS}/test_cancel.py -k "was_caught_stays"',
    ),
    # The whole run
    Mutant(
        "deadline-not-seen-by-calls",
        f"{ENGINE}/execution.py",
        "if (deadline := self.deadline) is not None and self.clock.now() >= deadline:",
        "if False:",
        f'{WORKFLOWS}/test_deadlines.py -k "waits_beyond and short and memory"',
    ),
    Mutant(
        "deadline-wakes-nobody",
        f"{ENGINE}/execution.py",
        "(*self.waits.copy().values(), self.deadline)",
        "(*self.waits.copy().values(),)",
        f'{WORKFLOWS}/test_deadlines.py -k "waits_beyond and ask and memory"',
    ),
    Mutant(
        "old-chapters-read-again",
        f"{ENGINE}/journals.py",
        "            start = self.chapter(record, upto)\n",
        "            start = 0\n",
        f'{WORKFLOWS}/test_values.py -k "stays_cheap and memory"',
    ),
    Mutant(
        "secret-stored",
        "src/holdfast/secret.py",
        '{"n": secret.name, "t": secret._token}',
        '{"n": secret.name, "t": secret._token, "v": secret.reveal()}',
        f'{WORKFLOWS}/test_values.py -k "nowhere_to_be_found"',
    ),
    Mutant(
        "secret-in-an-error",
        f"{ENGINE}/failures.py",
        "codec.scrub(name + _text_of(error))",
        "name + _text_of(error)",
        f'{WORKFLOWS}/test_values.py -k "nowhere_to_be_found"',
    ),
    # Workers
    Mutant(
        "worker-dies-of-sigterm",
        f"{ENGINE}/work.py",
        "                loop.add_signal_handler(number, crew.stop)\n",
        "",
        f'{WORKERS} -k "takes_too_long and sqlite and after"',
    ),
    Mutant(
        "stopping-worker-releases-nothing",
        f"{ENGINE}/work.py",
        "                if execution is not None:\n                    execution.release()\n",
        "                pass\n",
        f'{WORKFLOWS}/test_work.py -k "nothing_new_begins"',
    ),
    Mutant(
        "poison-never-parked",
        f"{ENGINE}/driving.py",
        "    if (tries := tries_alone(record) - 1) >= run._engine.max_crashes:\n",
        "    if (tries := tries_alone(record) - 1) >= 99:\n",
        f'{WORKERS} -k "keeps_killing and sqlite and plain"',
    ),
    Mutant(
        "deaths-not-counted",
        "src/holdfast/stores/base.py",
        "return record.crashes + 1 if record.crashes < SUSPECT or alone else record.crashes",
        "return 1",
        f'{WORKERS} -k "keeps_killing and sqlite and plain"',
    ),
    Mutant(
        "intent-counts-as-progress",
        f"{ENGINE}/lease.py",
        "return kind in (Kind.INTENDED, Kind.STARTED) or",
        "return kind == Kind.STARTED or",
        f'{WORKERS} -k "keeps_killing and sqlite and meant"',
    ),
    Mutant(
        "progress-does-not-count",
        "src/holdfast/stores/base.py",
        "    if record.crashed_at != record.seq:\n        return 1\n",
        "",
        f'{MEMORY} -k "begins_the_count_anew"',
    ),
    Mutant(
        "deaths-beside-others-count",
        "src/holdfast/stores/base.py",
        "return record.crashes + 1 if record.crashes < SUSPECT or alone else record.crashes",
        "return record.crashes + 1",
        f'{MEMORY} -k "without_writing_are_counted"',
    ),
    Mutant(
        "suspects-beside-others",
        f"{ENGINE}/work.py",
        "            if self._isolates():\n",
        "            if False:\n",
        f'{WORKERS} -k "honest and sqlite"',
    ),
    # What was acknowledged is recorded
    Mutant(
        "misfit-answer-fails-the-run",
        f"{ENGINE}/waits.py",
        "    except Misfit as misfit:  # it was accepted, so the code has changed since\n        _block_misfit(",
        "    except Misfit as misfit:\n        raise\n        _block_misfit(",
        f'{WORKFLOWS}/test_changed_forms.py -k "blocks_the_run"',
    ),
    Mutant(
        "ended-runs-take-items",
        "src/holdfast/stores/base.py",
        "    check_here(record)\n    if record.status in ENDED:\n",
        "    check_here(record)\n    if False:\n",
        f'{MEMORY} {SQLITE} {FILES} -k "has_ended_is_refused"',
    ),
    Mutant(
        "end-over-the-inbox",
        "src/holdfast/stores/base.py",
        "return InboxNotEmpty(write.id) if ends(write) and not set(untaken) <= set(write.took) else None",
        "return None",
        f'{MEMORY} {SQLITE} {FILES} -k "does_not_end_with_an_item"',
    ),
    Mutant(
        "unheld-run-takes-nothing-in",
        f"{ENGINE}/steps.py",
        "    if lease is None:\n        yield from record_unheld(run)\n",
        "",
        'tests/engine/test_acknowledged.py -k "every_view"',
    ),
    Mutant(
        "fork-without-what-is-pending",
        f"{ENGINE}/fork.py",
        "if is_head and kind in _ACKNOWLEDGED]",
        "if False]",
        'tests/engine/test_acknowledged.py -k "pending_in_every_view"',
    ),
    Mutant(
        "checkpoint-without-what-is-pending",
        f"{ENGINE}/run.py",
        "self._with_pending(self._journals.fold(record, at), items)[0])",
        "self._journals.fold(record, at))",
        'tests/engine/test_acknowledged.py -k "pending_in_every_view"',
    ),
    Mutant(
        "acknowledged-cancel-lost-at-the-end",
        f"{ENGINE}/endings.py",
        "            return (yield from cancel_driven(run, lease, wish))\n    if is_child",
        "            took = yield from wishes(run)\n    if is_child",
        'tests/engine/test_acknowledged.py -k "cancel_that_was_acknowledged"',
    ),
    Mutant(
        "no-goes-on",
        f"{ENGINE}/pauses.py",
        "    if checked is False and is_breakpoint(asked):\n",
        "    if False:\n",
        'tests/graph/test_interrupts.py -k "no_leaves_it_waiting"',
    ),
    Mutant(
        "resume-goes-over-a-no",
        f"{ENGINE}/pauses.py",
        "asked.key.startswith(INTERRUPT) and not asked.declined:",
        "asked.key.startswith(INTERRUPT):",
        'tests/graph/test_interrupts.py -k "no_leaves_it_waiting"',
    ),
    Mutant(
        "retried-attempt-without-intent",
        f"{ENGINE}/attempts.py",
        '    if "intent" in data and failed is not None and not failed.begun:\n',
        "    if False:\n",
        f'{WORKFLOWS}/test_effects.py -k "crash_in_any_attempt"',
    ),
    Mutant(
        "due-in-any-queue",
        "src/holdfast/stores/base.py",
        "        record.queue in queues\n        and record.workflow in workflows\n        and record.worker is None\n",
        "        record.workflow in workflows\n        and record.worker is None\n",
        f'{MEMORY} {FILES} -k "given_queues_and_workflows"',
    ),
    Mutant(
        "sqlite-due-in-any-queue",
        "src/holdfast/stores/sql/sqlite/queries.sql",
        "WHERE queue = ? AND priority = ? AND status = 'ready'",
        "WHERE ? IS NOT NULL AND priority = ? AND status = 'ready'",
        f'{SQLITE} -k "given_queues_and_workflows"',
    ),
    # Clocks that are changed
    Mutant(
        "tick-in-the-gap-is-lost",
        "src/holdfast/engine/cron.py",
        "        if is_left_out:\n",
        "        if is_left_out:\n            continue\n",
        "tests/workflows/test_cron.py",
    ),
    Mutant(
        "fixed-time-follows-the-hours",
        "src/holdfast/engine/cron.py",
        "    return len(simulated(cron, datetime.min).hours) == HOURS\n",
        "    return True\n",
        "tests/workflows/test_cron.py",
    ),
    # Values of secrets
    Mutant(
        "secret-in-a-value",
        "src/holdfast/codec/values.py",
        "            self.refuse_secrets(to_text(tree), path, tree)\n",
        "            pass\n",
        'tests/workflows/test_secret_values.py -k "sqlite and whatever"',
    ),
    Mutant(
        "secret-in-an-entry",
        "src/holdfast/engine/journals.py",
        "            payload = to_text(data)\n            self.codec.refuse_secrets(payload, what)\n",
        "            payload = to_text(data)\n",
        'tests/workflows/test_secret_values.py -k "sqlite and lets_out"',
    ),
    Mutant(
        "secret-in-an-id",
        "src/holdfast/engine/journals.py",
        '        self.codec.refuse_secrets(to_text(texts), "id, tags, queue or key of the run")\n',
        "",
        'tests/workflows/test_secret_values.py -k "sqlite and outside"',
    ),
]
