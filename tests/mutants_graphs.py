"""Faults of graphs, and the tests that must notice them; see mutants.py."""

from mutants_table import Mutant

GRAPH = "src/holdfast/graph"
ENGINE = "src/holdfast/engine"
TESTS = "tests/graph"

MUTANTS = [
    Mutant(
        "updates-in-the-order-of-finishing",
        f"{GRAPH}/plan.py",
        "names = sorted(pending, key=lambda name: self._order(name))",
        "names = list(pending)",
        f'{TESTS}/test_parallel.py -k "order_of_declaration"',
    ),
    Mutant(
        "finished-branch-stays-queued",
        f"{GRAPH}/plan.py",
        '{"l": [place, len(self.tree["queue"]) - place - 1, []]}',
        '{"l": [len(self.tree["queue"]), 0, []]}',
        f'{TESTS}/test_parallel.py -k "one_entry or did_not_finish"',
    ),
    Mutant(
        "join-does-not-wait",
        f"{GRAPH}/routing.py",
        "if ways.needed(name) is None and not any(other in ways.feeders(name) for other in others):",
        "if ways.needed(name) is None:",
        f'{TESTS}/test_joins.py -k "different_lengths"',
    ),
    Mutant(
        "waiting-joins-never-fire",
        f"{GRAPH}/routing.py",
        "fires = [name for name in patient if ways.needed(name) is None][:1]",
        "fires = []",
        f'{TESTS}/test_joins.py -k "wait_for_each_other"',
    ),
    Mutant(
        "nobody-is-given-up",
        f"{GRAPH}/plan.py",
        "return tuple((loser, join) for loser in losers)",
        "return ()",
        f'{TESTS}/test_joins.py -k "given_up and question"',
    ),
    Mutant(
        "until-is-ignored",
        f"{GRAPH}/routing.py",
        "if node.until is not None and not node.until(state):",
        "if node.until is not None and False:",
        f'{TESTS}/test_runs.py -k "until"',
    ),
    Mutant(
        "goal-is-ignored",
        f"{GRAPH}/plan.py",
        "if goal is None or not goal(view):",
        "if True:",
        f'{TESTS}/test_runs.py -k "goal"',
    ),
    Mutant(
        "router-goes-anywhere",
        f"{GRAPH}/routing.py",
        "if target not in router.targets:",
        "if False:",
        f'{TESTS}/test_runs.py -k "router_that_gives"',
    ),
    Mutant(
        "edit-drops-what-is-queued",
        f"{GRAPH}/plan.py",
        '{"queue": [*self.tree["queue"], *queue], **self._node(as_node)}',
        '{"queue": queue, **self._node(as_node)}',
        f'{TESTS}/test_edit.py -k "successors_are_queued"',
    ),
    Mutant(
        "as-node-is-done-again",
        f"{GRAPH}/plan.py",
        "if as_node is not None and as_node in queued:",
        "if as_node is not None and False:",
        f'{TESTS}/test_edit.py -k "as_a_queued_node"',
    ),
    Mutant(
        "types-are-not-checked",
        f"{GRAPH}/state.py",
        "problem = _misfit(field, value)",
        "problem = None",
        f'{TESTS}/test_state.py -k "does_not_fit or types_of_fields"',
    ),
    Mutant(
        "state-can-be-changed",
        f"{GRAPH}/state.py",
        "return {name: frozen(item) for name, item in fields.items()}",
        "return dict(fields)",
        f'{TESTS}/test_state.py -k "behind_the_journal"',
    ),
    Mutant(
        "guard-allows-one-more",
        "src/holdfast/graph/interrupts.py",
        "> graph.max_steps:",
        "> graph.max_steps + 1:",
        f'{TESTS}/test_guards.py -k "max_steps"',
    ),
    Mutant(
        "crash-gives-a-new-allowance",
        "src/holdfast/graph/interrupts.py",
        'if self.plan.count - self._allowance.get("steps", 0)',
        "if len(self.execution.lease.fold.log) - self.execution.began_at",
        f"{TESTS}/test_guards.py",
    ),
    Mutant(
        "changed-graph-goes-on",
        "src/holdfast/graph/interrupts.py",
        "    if problems:\n        execution.park(",
        "    if False:\n        execution.park(",
        f'{TESTS}/test_changed.py -k "parked"',
    ),
    Mutant(
        "interrupt-for-one-visit-only",
        "src/holdfast/graph/interrupts.py",
        '{INTERRUPT}before:{node}#{visit}"',
        '{INTERRUPT}before:{node}#1"',
        f'{TESTS}/test_interrupts.py -k "each_visit"',
    ),
    Mutant(
        "node-is-no-effect",
        "src/holdfast/graph/execution.py",
        "beside = self._effect(task, entry, said)",
        "beside = self._effect(task, entry, said)[:0]",
        f'{TESTS}/test_rollback.py -k "is_an_effect or in_reverse"',
    ),
    Mutant(
        "finished-tasks-are-missed",
        "src/holdfast/engine/workflow/execution.py",
        "                if not key.startswith(paths):\n",
        "                if False:\n",
        f"{TESTS}/test_rollback.py {TESTS}/test_interrupts.py",
    ),
    Mutant(
        "plain-functions-cannot-wait",
        "src/holdfast/engine/workflow/concurrency/async_execution.py",
        "            return bridge.carry(operation)\n",
        "            pass\n",
        f'{TESTS}/test_async.py -k "plain_function_asks"',
    ),
    Mutant(
        "fork-forgets-its-edit",
        "src/holdfast/engine/control/fork.py",
        "    if way.edit is not None:\n",
        "    if False:\n",
        f'{TESTS}/test_edit.py -k "fork_with_an_edit"',
    ),
    Mutant(
        "resume-does-not-answer-interrupts",
        "src/holdfast/engine/execute/result.py",
        "        yield from let_go_on(run)\n",
        "        pass\n",
        f'{TESTS}/test_interrupts.py -k "before_a_node"',
    ),
    Mutant(
        "result-of-another-state",
        "src/holdfast/graph/declare.py",
        'return {"saved": execution.lease.record.state}',
        'return {"saved": 1}',
        f'{TESTS}/test_runs.py -k "result_is_the_state"',
    ),
]
