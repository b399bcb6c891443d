"""The mutants of moves between stores, and of LangGraph's threads. See mutants_table.py."""

from mutants_table import MEMORY, Mutant

MOVING = "src/holdfast/engine/admin/move.py"
LANGGRAPH = "src/holdfast/integrations/langgraph"
CRASHES = "tests/crash/test_move_crashes.py"
GROWTH = "tests/integrations/langgraph/test_growth.py"

MUTANTS: list[Mutant] = [
    # A run lives in one place
    Mutant(
        "moves-take-a-copy-for-a-run-that-left",
        MOVING,
        "return replace(record, away=self._source.place, was=Status.AWAY)",
        "return replace(record, away=self._source.place)",
        f'{CRASHES} -k "moves_everything_back"',
    ),
    Mutant(
        "moves-let-it-live-before-it-departs",
        MOVING,
        "                    self._depart(*held[uid])\n",
        "                    write_one(self._target, EndMove(uid, held[uid][1].epoch, Status.READY))\n"
        "                    self._depart(*held[uid])\n",
        f'{CRASHES} -k "any_point and nothing"',
    ),
    Mutant(
        "moves-do-not-verify-the-copy",
        MOVING,
        "if there is None or there.record.hash != whole.record.hash or roots != [record.root]:",
        "if there is None:",
        "tests/engine/test_moving.py -k does_not_verify",
    ),
    Mutant(
        "moves-settle-whichever-move-it-is",
        "src/holdfast/kernel/rules.py",
        "record.status is not Status.AWAY or record.epoch != write.epoch:",
        "record.status is not Status.AWAY:",
        f'{MEMORY} -k "only_the_copy or settled_for_good"',
    ),
    # A list that grows is stored once, and as it is
    Mutant(
        "langgraph-takes-a-changed-object-for-the-same",
        "src/holdfast/integrations/langgraph/grown_list.py",
        "return same and bool(value.__dict__ == self.fields)",
        "return same",
        f"{GROWTH} -k only_if_it_is_unchanged",
    ),
    Mutant(
        "langgraph-shows-lists-that-grow",
        "src/holdfast/integrations/langgraph/thread_writer.py",
        "name: tree[: grown.get((ns, name))] if type(tree) is list else tree for",
        "name: tree for",
        f"{GROWTH} -k does_not_grow",
    ),
    Mutant(
        "langgraph-finds-the-wrong-elements",
        f"{LANGGRAPH}/layout.py",
        "return [index, channel, elements[start - front : start - front + count]]",
        "return [index, channel, elements[:count]]",
        f"{GROWTH} -k stored_once_and_is_read",
    ),
    Mutant(
        "langgraph-does-not-notice-fields",
        "src/holdfast/integrations/langgraph/grown_list.py",
        "            return self._dicts == self._fields\n",
        "            return True\n",
        "tests/integrations/langgraph/test_values.py -k in_place",
    ),
]
