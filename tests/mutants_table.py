"""The mutants: small faults put into the code on purpose, each with the tests that must notice it.

Add one for each promise that would be expensive to break unseen. Run them with `make mutants`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str  # what is broken, in a few words with dashes: `stale-epoch-writes`
    file: str  # from the root of the repository: `src/holdfast/journal/fold.py`
    old: str  # occurs exactly once in the file
    new: str
    tests: str  # what follows `pytest` on the command line, and must go red


# Where the tests of these promises live.
SQLITE = "tests/contract/test_contract.py::TestSqlite"
FILES = "tests/contract/test_contract.py::TestFiles"
MEMORY = "tests/contract/test_contract.py::TestMemory"
PROCESSES = "tests/processes"

MUTANTS: list[Mutant] = [
    # The fence: only the holder of the current epoch writes
    Mutant(
        "sqlite-ignores-epoch",
        "src/holdfast/stores/sqlite/sql/queries.sql",
        "AND r.epoch = ? AND ifnull(r.worker, '') = ?",
        "AND ? IS NOT NULL AND ifnull(r.worker, '') = ?",
        f'{SQLITE} -k "epoch and refused"',
    ),
    Mutant(
        "sqlite-ignores-worker",
        "src/holdfast/stores/sqlite/sql/queries.sql",
        "AND r.epoch = ? AND ifnull(r.worker, '') = ?",
        "AND r.epoch = ? AND ? IS NOT NULL",
        f'{SQLITE} -k "another_worker or after_release"',
    ),
    Mutant(
        "sqlite-ignores-previous-hash",
        "src/holdfast/stores/sqlite/sql/queries.sql",
        "AND (SELECT hash FROM entry WHERE run = r.n AND seq = ?) = ?)",
        "AND EXISTS (SELECT 1 FROM entry WHERE run = r.n AND seq = ?) AND ? IS NOT NULL)",
        f'{SQLITE} -k "wrong_hash"',
    ),
    Mutant(
        "sqlite-writes-to-another-run",
        "src/holdfast/stores/sqlite/sql/queries.sql",
        "AND +r.uid = ?",
        "AND ? IS NOT NULL",
        f'{SQLITE} -k "took_the_place"',
    ),
    Mutant(
        "files-beats-at-once",
        "src/holdfast/stores/files/store.py",
        "with self._root.translated(), self._beating:",
        "with self._root.translated():",
        f'{FILES} -k "beats_of_one_worker"',
    ),
    Mutant(
        "sqlite-batch-ignores-refusals",
        "src/holdfast/stores/sqlite/store.py",
        ".rowcount != len(rows)",
        ".rowcount > len(rows)",
        f'{SQLITE} -k "whatever_becomes_of_one"',
    ),
    Mutant(
        "sqlite-refused-step-keeps-its-rows",
        "src/holdfast/stores/sqlite/store.py",
        "            if outcome is not None or self._db.total_changes == before:",
        "            if False:",
        'tests/contract/test_transact.py -k "refused_append or made_before"',
    ),
    Mutant(
        "sqlite-lent-without-a-guard",
        "src/holdfast/stores/sqlite/guarded_connection.py",
        "        self.set_authorizer(self._authorize)\n",
        "",
        'tests/contract/test_transact.py -k "not_the_functions_business"',
    ),
    Mutant(
        "sqlite-numbers-not-unique",
        "src/holdfast/stores/sqlite/sql/0001_journal.sql",
        "CREATE UNIQUE INDEX entry_by_seq",
        "CREATE INDEX entry_by_seq",
        f'{SQLITE} -k "taken_number or number_that_is_taken or made_twice"',
    ),
    Mutant(
        "sqlite-conflict-fails-its-batch",
        "src/holdfast/stores/sqlite/store.py",
        (
            "            if len(batch) > 1:\n"
            "                return [outcome for write in batch for outcome in self.apply([write])]\n"
        ),
        "",
        f'{SQLITE} -k "rest_of_its_batch"',
    ),
    Mutant(
        "refusal-ignores-epoch",
        "src/holdfast/kernel/rules.py",
        'if record.epoch != write.epoch or (record.worker or "") != write.worker:',
        'if (record.worker or "") != write.worker:',
        f'{MEMORY} {FILES} -k "epoch and refused"',
    ),
    Mutant(
        "refusal-ignores-worker",
        "src/holdfast/kernel/rules.py",
        'if record.epoch != write.epoch or (record.worker or "") != write.worker:',
        "if record.epoch != write.epoch:",
        f'{MEMORY} {FILES} -k "another_worker or after_release"',
    ),
    Mutant(
        "anything-continues-a-journal",
        "src/holdfast/kernel/rules.py",
        "return first.seq == record.seq + 1 and first.prev == record.hash and is_chain(write.entries)",
        "return True",
        f'{MEMORY} {FILES} -k "gap or wrong_hash"',
    ),
    Mutant(
        "own-write-refused-the-second-time",
        "src/holdfast/kernel/rules.py",
        ("    if stored and stored[0].hash == last.hash:\n        return None\n"),
        "",
        f'{SQLITE} {MEMORY} {FILES} -k "made_twice"',
    ),
    Mutant(
        "foreign-entry-taken-for-own",
        "src/holdfast/kernel/rules.py",
        "if stored and stored[0].hash == last.hash:",
        "if stored:",
        f'{SQLITE} {MEMORY} {FILES} -k "taken_by_another_entry"',
    ),
    # Claims
    Mutant(
        "live-holder-robbed",
        "src/holdfast/kernel/rules.py",
        "    if record.worker is not None and holder_alive:\n        if record.worker == worker:",
        "    if False:\n        if record.worker == worker:",
        f'{PROCESSES}/test_claims.py -k "between_processes and sqlite"',
    ),
    Mutant(
        "lock-of-the-dead-ignored",
        "src/holdfast/kernel/rules.py",
        "        if running is False:\n",
        "        if False:\n",
        f'{PROCESSES}/test_kills.py -k "sqlite"',
    ),
    Mutant(
        "lease-never-ends",
        "src/holdfast/kernel/rules.py",
        "self.boot == clock.boot and self.ends > clock.monotonic()",
        "self.boot == clock.boot",
        f'{PROCESSES}/test_zombies.py -k "leaves_nothing"',
    ),
    Mutant(
        "lease-by-the-wall-clock",
        "src/holdfast/kernel/rules.py",
        "self.boot == clock.boot and self.ends > clock.monotonic()",
        "self.until > clock.now()",
        f'{SQLITE} {MEMORY} {FILES} -k "clock_that_is_set"',
    ),
    Mutant(
        "lease-of-another-boot-holds",
        "src/holdfast/kernel/rules.py",
        "return self.boot == clock.boot and self.ends",
        "return self.ends",
        f'{SQLITE} {FILES} -k "another_boot"',
    ),
    Mutant(
        "missing-lock-taken-for-a-free-one",
        "src/holdfast/stores/locks.py",
        "        except (FileNotFoundError, PermissionError):\n            return None\n",
        "        except (FileNotFoundError, PermissionError):\n            return False\n",
        f'{PROCESSES}/test_removals.py -k "lock_folder"',
    ),
    Mutant(
        "locks-not-made-again",
        "src/holdfast/stores/locks.py",
        "        if held is not None and not held.is_at(self._path(worker)):\n",
        "        if False:\n",
        f'{PROCESSES}/test_removals.py -k "lock_folder"',
    ),
    Mutant(
        "removed-database-written-to",
        "src/holdfast/stores/sqlite/transactions.py",
        "            self._check_contents(mark)\n            self._raise_stamp()\n",
        "            self._raise_stamp()\n",
        f'{PROCESSES}/test_removals.py -k "database"',
    ),
    Mutant(
        "network-file-system-used",
        "src/holdfast/stores/mounts.py",
        "    if kind in NETWORKED:\n",
        "    if False:\n",
        'tests/engine/test_disks.py -k "network"',
    ),
    Mutant(
        "full-disk-taken-for-a-broken-one",
        "src/holdfast/stores/sqlite/connect.py",
        " or whole == sqlite3.SQLITE_IOERR_SHMSIZE:",
        ":",
        f"{PROCESSES}/test_full_disks.py",
    ),
    Mutant(
        "zombie-executes-a-step",
        "src/holdfast/engine/access/heartbeat.py",
        "return self._clock.monotonic() < self.until and lease.lapses == self.lapses",
        "return True",
        "tests/workflows/test_lapses.py",
    ),
    Mutant(
        "zombie-trusts-its-late-heartbeat",
        "src/holdfast/engine/access/heartbeat.py",
        "self.until and lease.lapses == self.lapses",
        "self._until",
        "tests/workflows/test_lapses.py",
    ),
    Mutant(
        "no-heartbeat",
        "src/holdfast/engine/access/heartbeat.py",
        "                self._extend()\n                self.at_beat()\n",
        "                self.at_beat()\n",
        f'{PROCESSES}/test_zombies.py -k "heartbeat and sqlite"',
    ),
    Mutant(
        "answer-at-the-last-moment-unseen",
        "src/holdfast/kernel/rules.py",
        "return woken(record) if mail else record",
        "return record",
        f'{SQLITE} {MEMORY} {FILES} -k "goes_to_wait_with_mail"',
    ),
    Mutant(
        "files-key-used-twice",
        "src/holdfast/stores/files/store.py",
        " or folder.is_used(contents, item.key)",
        "",
        f'{FILES} -k "key_is_used_once"',
    ),
    Mutant(
        "files-run-not-locked",
        "src/holdfast/stores/files/folder.py",
        '            take_folder(lock, self._in("lock"), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)\n',
        "",
        f'{PROCESSES}/test_together.py -k "two_processes and files and nobody"',
    ),
    # Forks of the process
    Mutant(
        "forked-child-keeps-locks",
        "src/holdfast/stores/locks.py",
        "os.register_at_fork(after_in_child=_close_copies)\n",
        "",
        f'{PROCESSES}/test_forks.py -k "born_in_a_write"',
    ),
    Mutant(
        "forked-child-inherits-sqlite",
        "src/holdfast/stores/sqlite/file.py",
        ("        if not self._db.in_transaction:\n            self._reader.close()\n            self._db.close()\n"),
        "",
        f'{PROCESSES}/test_forks.py -k "what_a_child_writes and sqlite"',
    ),
    Mutant(
        "forked-child-waits-for-locks",
        "src/holdfast/engine/access/commit.py",
        "if self._process is not _process:",
        "if False:",
        f'{PROCESSES}/test_forks.py -k "child_is_refused and busy"',
    ),
    # What is acknowledged lasts
    Mutant(
        "files-line-not-synced",
        "src/holdfast/stores/files/folder.py",
        ("                self._disk.write(file, line)\n                self._disk.fsync(file)\n"),
        "                self._disk.write(file, line)\n",
        'tests/files/test_use.py -k "one_sync"',
    ),
    Mutant(
        "files-folder-not-synced",
        "src/holdfast/stores/files/disk.py",
        ('    disk.replace(path + ".new", path)\n    if sync:\n        disk.fsync_folder(os.path.dirname(path))\n'),
        '    disk.replace(path + ".new", path)\n',
        'tests/files/test_crashes.py -k "power_failure_at_every_call"',
    ),
    Mutant(
        "sqlite-not-synced",
        "src/holdfast/stores/sqlite/file.py",
        'db.execute(f"PRAGMA synchronous = {self._durability}")',
        'db.execute("PRAGMA synchronous = normal")',
        'tests/seeds -k "synced"',
    ),
    Mutant(
        "files-torn-line-is-damage",
        "src/holdfast/stores/files/journal.py",
        "        end = at  # it was cut off, so it was never acknowledged\n",
        '        raise Damaged(at, "it was cut off")\n',
        'tests/files/test_tails.py -k "torn"',
    ),
    Mutant(
        "files-torn-line-stays",
        "src/holdfast/stores/files/folder.py",
        ("                self._disk.truncate(file, contents.end)\n            if not"),
        ("                pass\n            if not"),
        'tests/files/test_tails.py -k "torn"',
    ),
    Mutant(
        "commits-one-by-one",
        "src/holdfast/engine/access/commit.py",
        "batch = list(self._queue)",
        "batch = list(self._queue)[:1]",
        f'{PROCESSES}/test_promises.py -k "committed_together"',
    ),
    Mutant(
        "who-waits-for-a-commit-is-forgotten",
        "src/holdfast/engine/access/commit.py",
        "            self.futures.append(future)\n",
        "            self.futures = [future]\n",
        'tests/engine/test_waiting_together.py -k "both_go_on"',
    ),
    Mutant(
        "lone-task-keeps-the-loop",
        "src/holdfast/engine/access/commit.py",
        "            if task != me or time.monotonic() >= until:\n",
        "            if task != me:\n",
        'tests/engine/test_waiting_together.py -k "leaves_turns"',
    ),
    Mutant(
        "short-way-without-commit",
        "src/holdfast/engine/workflow/step.py",
        "            committer.settle(ticket)\n",
        "            pass\n",
        'tests/engine/test_waiting_together.py -k "a_step_gives"',
    ),
    Mutant(
        "short-way-takes-any-arguments",
        "src/holdfast/engine/workflow/step.py",
        "            check_same(execution, key, call.step.name, found, digest, stored)\n",
        "",
        "tests/workflows/test_called_differently.py",
    ),
    # Damage is noticed
    Mutant(
        "hash-not-checked",
        "src/holdfast/kernel/journal.py",
        "        if chain(entry.prev, entry.seq, entry.kind, entry.at, entry.state, entry.payload) != entry.hash:\n",
        "        if False:\n",
        'tests/seeds -k "corrupt and (sqlite or memory)"',
    ),
    Mutant(
        "erasure-needs-no-voucher",
        "src/holdfast/engine/control/audit.py",
        "        if vouched.get(seq) != left:\n",
        "        if False:\n",
        f'{PROCESSES}/test_promises.py -k "erasure"',
    ),
    Mutant(
        "cut-history-not-noticed",
        "src/holdfast/engine/control/audit.py",
        "    if seq not in hashes:\n",
        "    if False:\n",
        f'{PROCESSES}/test_promises.py -k "cut_short"',
    ),
    Mutant(
        "sealed-for-any-place",
        "src/holdfast/codec/cipher.py",
        (
            "self._aes.encrypt(nonce, plain, place)\n"
            "\n"
            "    def open(self, data: bytes, place: bytes) -> bytes:\n"
            '        """The payload that was sealed for this place; raises ValueError for anything else."""\n'
            "        if data[:1] != ENCRYPTED:\n"
            '            raise ValueError("the payload is not encrypted")\n'
            "        plain = _decrypt(self._aes, data[1:], place)"
        ),
        (
            'self._aes.encrypt(nonce, plain, b"")\n'
            "\n"
            "    def open(self, data: bytes, place: bytes) -> bytes:\n"
            '        """The payload that was sealed for this place; raises ValueError for anything else."""\n'
            "        if data[:1] != ENCRYPTED:\n"
            '            raise ValueError("the payload is not encrypted")\n'
            '        plain = _decrypt(self._aes, data[1:], b"")'
        ),
        f'{PROCESSES}/test_promises.py tests/codec/test_cipher.py -k "place"',
    ),
    Mutant(
        "lone-surrogate-in-id",
        "src/holdfast/kernel/rules.py",
        "        id.encode()\n",
        '        id.encode(errors="surrogatepass")\n',
        'tests/seeds -k "cannot_be_kept"',
    ),
    # History
    Mutant(
        "abandoned-history-counts",
        "src/holdfast/kernel/journal.py",
        "        kept = [(lo, min(hi, rewind.to)) for lo, hi in ranges if lo <= rewind.to]\n",
        "        kept = ranges\n",
        "tests/engine/test_rollback.py",
    ),
    Mutant(
        "later-rewinds-count",
        "src/holdfast/kernel/journal.py",
        ("        if rewind.at > at:\n            break\n"),
        "",
        f'{PROCESSES}/test_promises.py -k "abandoned"',
    ),
    Mutant(
        "never-a-snapshot",
        "src/holdfast/kernel/journal.py",
        "return chain_bytes + delta_bytes > SNAPSHOT_FACTOR * whole_bytes",
        "return False",
        f'{PROCESSES}/test_promises.py -k "about_twice"',
    ),
    Mutant(
        "always-a-snapshot",
        "src/holdfast/kernel/journal.py",
        "return chain_bytes + delta_bytes > SNAPSHOT_FACTOR * whole_bytes",
        "return True",
        f'{PROCESSES}/test_promises.py -k "growth"',
    ),
    Mutant(
        "completed-step-runs-again",
        "src/holdfast/engine/run/manual_step.py",
        ("        if done is not None:\n            return _stored"),
        ("        if False:\n            return _stored"),
        'tests/engine/test_steps.py -k "not_run_again"',
    ),
    Mutant(
        "acts-before-the-intent",
        "src/holdfast/engine/run/manual_step.py",
        (
            '    written = yield from run.write(lease, [(Kind.INTENDED, intent)], what=f"arguments of {key}")\n'
            "    yield from run.confirm(lease)\n"
            '    settled: Data = {"key": key, "intent": written}\n'
            "    since = time.monotonic()\n"
            "    try:\n"
            "        result = yield request\n"
        ),
        (
            "    since = time.monotonic()\n"
            "    try:\n"
            "        result = yield request\n"
            '        written = yield from run.write(lease, [(Kind.INTENDED, intent)], what=f"arguments of {key}")\n'
            '        settled: Data = {"key": key, "intent": written}\n'
        ),
        'tests/engine/test_steps.py -k "intent_first or at_most_once"',
    ),
    Mutant(
        "at-most-once-twice",
        "src/holdfast/engine/run/manual_step.py",
        "if at_most_once and key in lease.fold.intents:",
        "if False:",
        'tests/engine/test_steps.py -k "at_most_once"',
    ),
    Mutant(
        "snapshots-measured-as-if-compressed",
        "src/holdfast/engine/access/lease.py",
        "len(to_text(tree))",
        "len(to_text(tree)) // 3",
        "tests/engine/test_sqlite.py",
    ),
    Mutant(
        "rewinds-forgotten-within-a-claim",
        "src/holdfast/engine/access/lease.py",
        "        self.record = appended(record, write, mail=False)\n",
        (
            "        from msgspec.structs import replace\n\n"
            "        self.record = replace(appended(record, write, mail=False), rewinds=record.rewinds)\n"
        ),
        "tests/engine/test_states_by_chance.py tests/engine/test_interleaving.py",
    ),
    Mutant(
        "decided-before-it-lasts",
        "src/holdfast/engine/access/held_run.py",
        "                yield from self.catch_up(lease)\n                if lease.lost:\n",
        "                if lease.lost:\n",
        "tests/engine/test_async_and_threads.py tests/engine/test_interleaving.py",
    ),
    # Forks of a run
    Mutant(
        "sqlite-forgets-forks",
        "src/holdfast/stores/sqlite/store.py",
        ' or self._db.execute(Q["is_shared"], (number,)).fetchone()',
        "",
        f'{SQLITE} -k "with_forks_is_hidden"',
    ),
    Mutant(
        "memory-forgets-forks",
        "src/holdfast/stores/memory.py",
        "shared = any(link.uid == uid for other in self._shelf.runs.values() for link in other.record.lineage)",
        "shared = False",
        f'{MEMORY} -k "with_forks_is_hidden"',
    ),
    Mutant(
        "files-forgets-forks",
        "src/holdfast/stores/files/run_folders.py",
        ("        for uid, id in folder.forks():\n            if (name"),
        ("        for uid, id in ():\n            if (name"),
        f'{FILES} -k "with_forks_is_hidden"',
    ),
    # Crashes, power failures, damage, full disks
    Mutant(
        "crash-files-line-not-synced",
        "src/holdfast/stores/files/folder.py",
        ("                self._disk.write(file, line)\n                self._disk.fsync(file)\n"),
        ("                self._disk.write(file, line)\n"),
        'tests/crash/test_power_loss.py -k "any_point and loop"',
    ),
    Mutant(
        "crash-replaced-name-not-synced",
        "src/holdfast/stores/files/disk.py",
        ("        disk.fsync_folder(os.path.dirname(path))\n"),
        ("        pass\n"),
        'tests/crash/test_power_loss.py -k "any_point and (ask or secret)"',
    ),
    Mutant(
        "crash-replaced-file-not-synced",
        "src/holdfast/stores/files/disk.py",
        ("        if sync:\n            disk.fsync(file)\n"),
        "",
        'tests/crash/test_power_loss.py -k "any_point and ask"',
    ),
    Mutant(
        "crash-new-run-not-synced",
        "src/holdfast/stores/files/run_folders.py",
        ("        self._disk.rename(passing, path)\n        self._disk.fsync_folder(parent)\n"),
        ("        self._disk.rename(passing, path)\n"),
        'tests/crash/test_power_loss.py -k "any_point and loop"',
    ),
    Mutant(
        "crash-undo-repeated",
        "src/holdfast/engine/control/rollback.py",
        "    yield from run.write(lease, [(Kind.UNDONE, outcome)])\n",
        "    yield from ()\n",
        'tests/engine/test_rollback.py -k "dies_is_continued"',
    ),
    Mutant(
        "crash-rollback-not-finished",
        "src/holdfast/engine/access/held_run.py",
        "            if record.rollback is not None:\n                yield",
        "            if False:\n                yield",
        'tests/crash/test_crash_points.py -k "any_point and memory and back"',
    ),
    Mutant(
        "crash-completed-step-repeated",
        "src/holdfast/engine/run/manual_step.py",
        ("        done = lease.fold.steps.get(key)\n"),
        ("        done = None\n"),
        'tests/crash/test_crash_points.py -k "any_point and memory and effects"',
    ),
    Mutant(
        "crash-ended-run-claimed",
        "src/holdfast/engine/access/held_run.py",
        "if lease.fold.ended is not None and lease.fold.ended[0] not in allow:",
        "if False:",
        'tests/crash/test_crash_points.py -k "no_recovery and memory and erase"',
    ),
    Mutant(
        "crash-recover-stops-at-a-missing-key",
        "src/holdfast/engine/admin/recover.py",
        ("        except HoldfastError:\n            continue"),
        ("        except Claimed:\n            continue"),
        'tests/crash/test_crash_points.py -k "any_point and memory and secret"',
    ),
    Mutant(
        "crash-files-cut-line-not-removed",
        "src/holdfast/stores/files/folder.py",
        ("            if contents.end < contents.journal[1]:\n"),
        ("            if False:\n"),
        'tests/crash/test_crash_points.py -k "any_point and files and loop"',
    ),
    Mutant(
        "crash-answer-forgotten",
        "src/holdfast/stores/files/folder.py",
        ("        self.put(RunFile(record, number))\n"),
        ("        self._known = None\n"),
        'tests/crash/test_crash_points.py -k "any_point and files and ask"',
    ),
    Mutant(
        "crash-restore-not-resumed",
        "src/holdfast/engine/admin/backup.py",
        "if not _is_here(store, archived.record)",
        "",
        'tests/crash/test_crash_points.py -k "any_point and memory and move"',
    ),
    Mutant(
        "damage-files-checksum",
        "src/holdfast/stores/files/text.py",
        '    if cut < 0 or text[cut:] != b"".join((before, _sum(text[:cut]), after)):',
        "    if cut < 0:",
        "tests/damage/test_files_damage.py",
    ),
    Mutant(
        "damage-hash-not-checked",
        "src/holdfast/kernel/journal.py",
        "        if chain(entry.prev, entry.seq",
        "        if False and chain(entry.prev, entry.seq",
        'tests/damage/test_sqlite_damage.py -k "leaves_the_others or database"',
    ),
    Mutant(
        "damage-sqlite-gap",
        "src/holdfast/stores/sqlite/reads.py",
        "            if saved is not None and limit is None:",
        "            if False:",
        'tests/damage/test_sqlite_damage.py -m torture -k "flipped_byte_in_the_database"',
    ),
    Mutant(
        "damage-sqlite-inbox",
        "src/holdfast/stores/sql_rows.py",
        "if type(sealed) is not bytes or sealed[:8] != checksum_of((key, kind, at, wakes, payload)):",
        "if False:",
        'tests/damage/test_sqlite_damage.py -m torture -k "flipped_byte_in_the_database"',
    ),
    Mutant(
        "damage-one-index-of-ids",
        "src/holdfast/stores/sqlite/reads.py",
        "        if row is None and is_known_id(db, id):",
        "        if False:",
        'tests/damage/test_sqlite_indexes.py -k "not_made_again"',
    ),
    Mutant(
        "damage-one-index-of-ids-in-a-transaction",
        "src/holdfast/stores/sqlite/user_transaction.py",
        "            if row is None:\n",
        "            if False:\n",
        'tests/damage/test_sqlite_indexes.py -k "inside_of_a_transaction"',
    ),
    Mutant(
        "damage-one-index-of-uids",
        "src/holdfast/stores/sqlite/reads.py",
        "        if row is None and is_known_uid(db, uid):\n            with",
        "        if False:\n            with",
        'tests/damage/test_sqlite_indexes.py -k "index_of_uids"',
    ),
    Mutant(
        "damage-one-index-of-inboxes",
        "src/holdfast/stores/sqlite/damage.py",
        "    if counts[:3] != counts[3:] or",
        "    if False and",
        'tests/damage/test_sqlite_indexes.py -k "not_open_again"',
    ),
    Mutant(
        "damage-one-index-of-documents",
        "src/holdfast/stores/sqlite/damage.py",
        "    if found != again:",
        "    if False:",
        'tests/damage/test_sqlite_indexes.py -k "limits_and_schedules"',
    ),
    Mutant(
        "damage-journal-cut-short",
        "src/holdfast/stores/sqlite/rows.py",
        "(type(newest) is not int or newest > seq)",
        "False",
        'tests/damage/test_sqlite_indexes.py -k "cuts_short"',
    ),
    Mutant(
        "damage-tail-of-the-dead",
        "src/holdfast/stores/sqlite/damage.py",
        '    if row is not None:\n        raise RunDamaged(id, f"an index',
        '    if False:\n        raise RunDamaged(id, f"an index',
        'tests/damage/test_sqlite_indexes.py -k "dead_holder"',
    ),
    Mutant(
        "damage-worker-row-sqlite",
        "src/holdfast/stores/sqlite/rows.py",
        "    if not is_term or checksum != checksum_of((name, until, boot, ends)):",
        "    if False:",
        'tests/damage/test_sqlite_indexes.py -k "worker"',
    ),
    Mutant(
        "damage-worker-file",
        "src/holdfast/stores/files/store.py",
        "        except Damage:\n            term = None\n",
        "        except Damage:\n            return False\n",
        'tests/damage/test_files_damage.py -k "worker"',
    ),
    Mutant(
        "damage-lost-ancestor",
        "src/holdfast/engine/access/journal_reader.py",
        "        if not there:\n",
        "        if False:\n",
        "tests/damage/test_lineage.py",
    ),
    Mutant(
        "damage-unclean-end-not-seen",
        "src/holdfast/stores/locks.py",
        "        self.left_open = self.alone and os.fstat(self.fd).st_size > 0",
        "        self.left_open = False",
        'tests/damage/test_sqlite_indexes.py -k "after_an_unclean_end"',
    ),
    Mutant(
        "damage-log-that-was-left-not-seen",
        "src/holdfast/stores/sqlite/file.py",
        ' or (self._presence.alone and is_filled(self.path + "-wal"))',
        "",
        'tests/damage/test_sqlite_indexes.py -k "log_that_was_left"',
    ),
    Mutant(
        "damage-doctor-compares-no-tables",
        "src/holdfast/stores/sqlite/damage.py",
        "        if count:\n",
        "        if False:\n",
        'tests/damage/test_sqlite_indexes.py -k "doctor"',
    ),
    Mutant(
        "damage-columns-of-a-record-in-postgres",
        "src/holdfast/stores/postgres/rows.py",
        "    if not is_stored_entry(row) or prev is None:",
        "    if False:",
        "tests/postgres/test_columns.py",
    ),
    Mutant(
        "read-only-is-not-opened",
        "src/holdfast/stores/sqlite/file.py",
        "            if not is_refused(error) or not os.path.isfile(self.path):",
        "            if True:",
        'tests/damage/test_read_only.py -k "sqlite"',
    ),
    Mutant(
        "read-only-leaves-out-the-log",
        "src/holdfast/stores/sqlite/connect.py",
        ' or way != "mode=ro" or is_filled(path + "-wal"):',
        ' or way != "mode=ro":',
        'tests/damage/test_read_only.py -k "left_out"',
    ),
    Mutant(
        "damage-sqlite-raw-error",
        "src/holdfast/stores/sqlite/connect.py",
        ("        sqlite3.SQLITE_ERROR,\n"),
        "",
        'tests/damage/test_sqlite_damage.py -m torture -k "flipped_byte_in_the_database"',
    ),
    Mutant(
        "damage-header-no-remedy",
        "src/holdfast/stores/sqlite/connect.py",
        ("        sqlite3.SQLITE_NOTADB,\n"),
        "",
        'tests/damage/test_sqlite_damage.py -k "header"',
    ),
    Mutant(
        "full-disk-strands-the-run",
        "src/holdfast/engine/access/held_run.py",
        ("            self.engine.stuck[self.uid] = lease, change\n"),
        "",
        'tests/damage/test_full_disk.py -k "full_disk"',
    ),
    Mutant(
        "full-disk-unknown",
        "src/holdfast/stores/files/root.py",
        "_FULL = (errno.ENOSPC, errno.EDQUOT)",
        "_FULL = (errno.EDQUOT,)",
        "tests/damage/test_full_disk.py -k full_disk",
    ),
    Mutant(
        "read-only-unknown",
        "src/holdfast/stores/files/root.py",
        "errno.EACCES, errno.EPERM, errno.EROFS, ",
        "",
        'tests/damage/test_full_disk.py -k "written or permission"',
    ),
    Mutant(
        "failed-sync-goes-on-sqlite",
        "src/holdfast/stores/sqlite/transactions.py",
        (
            '            self._unusable = f"a write to the disk failed ({error})"\n'
            '            raise StoreUnusable(self.place, f"{self._unusable};'
        ),
        '            raise StoreUnusable(self.place, f"{error};',
        'tests/damage/test_full_disk.py -k "sync_sqlite"',
    ),
    Mutant(
        "crash-sqlite-commit-not-awaited",
        "src/holdfast/stores/sqlite/transactions.py",
        ('        log = self._log\n        if log is None or self._durability != "full":\n'),
        (
            '        if statement == "COMMIT" and self._db.total_changes % 7 == 3:\n'
            '            statement = "ROLLBACK"\n'
            '        log = self._log\n        if log is None or self._durability != "full":\n'
        ),
        'tests/crash/test_crash_points.py -k "any_point and sqlite and loop"',
    ),
    Mutant(
        "log-not-lengthened",
        "src/holdfast/stores/sqlite/transactions.py",
        "        if os.lseek(log.fd, 0, os.SEEK_END) > before:\n",
        "        if os.lseek(log.fd, 0, os.SEEK_END) < before:\n",
        "tests/contract/test_sqlite_log.py",
    ),
    Mutant(
        "log-lengthened-over-what-others-write",
        "src/holdfast/stores/sqlite/wal.py",
        "os.O_WRONLY | os.O_APPEND",
        "os.O_WRONLY",
        "tests/contract/test_sqlite_log.py",
    ),
    Mutant(
        "transaction-left-open-by-an-interrupt",
        "src/holdfast/stores/sqlite/transactions.py",
        '                    self._roll_back()\n                    self._cursor.execute("BEGIN IMMEDIATE")\n',
        '                    self._cursor.execute("BEGIN IMMEDIATE")\n',
        "tests/contract/test_sqlite_interrupts.py",
    ),
    Mutant(
        "step-into-a-transaction-that-is-open",
        "src/holdfast/stores/sqlite/transactions.py",
        "                self._roll_back()\n                return",
        "                return",
        "tests/contract/test_sqlite_interrupts.py",
    ),
    Mutant(
        "locks-of-a-link",
        "src/holdfast/stores/sqlite/file.py",
        "os.path.realpath(path)",
        "os.path.abspath(path)",
        'tests/contract/test_schema.py -k "link"',
    ),
    Mutant(
        "pruned-while-it-is-copied",
        "src/holdfast/integrations/langgraph/threads_admin.py",
        "        if now is not None and now.chapter == record.chapter:\n",
        "        if now is not None:\n",
        'tests/integrations/langgraph/test_meanwhile.py -k "copy and sqlite"',
    ),
    Mutant(
        "read-while-it-is-pruned",
        "src/holdfast/integrations/langgraph/reading.py",
        "        if record is not None and (record.uid, record.chapter) == (before.uid, before.chapter):\n",
        "        if record is not None:\n",
        'tests/integrations/langgraph/test_meanwhile.py -k "whole and sqlite"',
    ),
    # Turns, acknowledgements, and what other threads do first
    Mutant(
        "tasks-write-out-of-turn",
        "src/holdfast/engine/access/held_run.py",
        "            end_turn = yield TakeTurn(lease.line)\n",
        "            end_turn = no_turn\n",
        "tests/postgres/test_loop.py",
    ),
    Mutant(
        "loop-waits-for-a-reader",
        "src/holdfast/engine/access/lease.py",
        "        if not self.lock.acquire(blocking=False):\n            return True\n",
        "        self.lock.acquire()\n",
        'tests/postgres/test_loop.py -k "under_the_lock"',
    ),
    Mutant(
        "edit-of-another-state",
        "src/holdfast/engine/control/edit.py",
        "return lease.change(edited.delta, on=saved)",
        "return lease.change(edited.delta)",
        'tests/engine/test_edits_and_ends.py -k "not_made_for"',
    ),
    Mutant(
        "tag-counts-as-commit",
        "src/holdfast/stores/postgres/connections.py",
        "            raise\n        _untold(conn, error)\n    _check_committed(conn, committed)\n    return",
        "        _untold(conn, error)\n    return",
        "tests/postgres/test_acknowledged.py",
    ),
    Mutant(
        "isolation-of-the-server",
        "src/holdfast/stores/postgres/connections.py",
        '"default_transaction_isolation": r"read\\ committed"',
        "",
        'tests/postgres/test_acknowledged.py -k "isolation"',
    ),
    Mutant(
        "rollback-counts-as-commit",
        "src/holdfast/stores/postgres/connections.py",
        "    if committed.statusmessage != COMMITTED:\n        raise errors",
        "    if False:\n        raise errors",
        'tests/postgres/test_acknowledged.py -k "proven"',
    ),
    Mutant(
        "commit-without-a-transaction",
        "src/holdfast/stores/postgres/connections.py",
        "    if conn.warnings:\n",
        "    if False:\n",
        'tests/postgres/test_acknowledged.py -k "proven"',
    ),
    Mutant(
        "commit-that-fails-in-a-pipeline",
        "src/holdfast/stores/postgres/guarded_connection.py",
        "        except IndexError:\n",
        "        except ZeroDivisionError:\n",
        'tests/postgres/test_acknowledged.py -k "at_its_end"',
    ),
    Mutant(
        "idle-session-is-not-counted",
        "src/holdfast/stores/postgres/guarded_connection.py",
        "super()._fetch_gen(flush=False)",
        "super()._fetch_gen(flush=flush)",
        'tests/postgres/test_stale.py -k "idles"',
    ),
    Mutant(
        "who-waits-ends-nothing",
        "src/holdfast/stores/postgres/connections.py",
        "                if blocked:\n",
        "                if False:\n",
        'tests/postgres/test_stale.py -k "who_waits"',
    ),
    Mutant(
        "heartbeat-ends-nothing",
        "src/holdfast/stores/postgres/store.py",
        "            if stale:\n",
        "            if False:\n",
        'tests/postgres/test_stale.py -k "heartbeat" --timeout 90',
    ),
    Mutant(
        "ended-session-is-not-told",
        "src/holdfast/stores/postgres/store.py",
        "        if ended:\n",
        "        if False:\n",
        'tests/postgres/test_stale.py -k "heartbeat"',
    ),
    Mutant(
        "step-of-a-user-is-ended",
        "src/holdfast/stores/postgres/sql/queries.sql",
        "AND l.mode <> 'AccessShareLock'\n    AND l.database",
        "AND l.database",
        'tests/postgres/test_stale.py -k "step_of_a_user"',
    ),
    Mutant(
        "transaction-of-a-user-is-ended",
        "src/holdfast/stores/postgres/sql/queries.sql",
        " AND a.application_name ~ '^holdfast( |$)'",
        "",
        'tests/postgres/test_stale.py -k "users_own"',
    ),
    Mutant(
        "locked-queue-is-waited-for",
        "src/holdfast/stores/postgres/sql/queries.sql",
        "ORDER BY name FOR UPDATE SKIP LOCKED",
        "ORDER BY name FOR UPDATE",
        'tests/postgres/test_stale.py -k "passed_over"',
    ),
    Mutant(
        "late-take-is-forgotten",
        "src/holdfast/stores/postgres/store.py",
        'begin(conn, (self._q["lock"], (uids,)), (query, (uids,)))',
        "begin(conn, (query, (uids,)), (query, (uids,)))",
        'tests/postgres/test_stale.py -k "late"',
    ),
    Mutant(
        "failed-claim-is-forgotten",
        "src/holdfast/stores/postgres/store.py",
        "            if before is not None and wanted is not None:\n",
        "            if False:\n",
        'tests/postgres/test_stale.py -k "given_up and claim"',
    ),
    Mutant(
        "failed-take-is-forgotten",
        "src/holdfast/stores/postgres/store.py",
        "            self._unanswered.update((one.uid",
        "            dict().update((one.uid",
        'tests/postgres/test_stale.py -k "given_up and take"',
    ),
    Mutant(
        "ended-run-stays-claimed",
        "src/holdfast/stores/postgres/store.py",
        "                if isinstance(outcome, InboxNotEmpty):",
        "                if False:",
        'tests/postgres/test_stale.py -k "had_ended"',
    ),
    Mutant(
        "claim-of-another-call-is-given-up",
        "src/holdfast/stores/postgres/store.py",
        "            if self._claims.get(uid) != wanted.epoch:",
        "            if True:",
        'tests/postgres/test_stale.py -k "another_call"',
    ),
    Mutant(
        "pooler-ignores-settings",
        "src/holdfast/stores/postgres/connections.py",
        'direct and self._limits and kept != "0"',
        "self._limits",
        'tests/postgres/faults/test_pooler.py -k "settings"',
    ),
    Mutant(
        "step-behind-a-pooler",
        "src/holdfast/stores/postgres/append.py",
        "        if not conn.limited:\n",
        "        if False:\n",
        'tests/postgres/faults/test_pooler.py -k "settings"',
    ),
    Mutant(
        "commit-waits-for-no-disk",
        "src/holdfast/stores/postgres/connections.py",
        '            wanted.append(SYNCED.format(local="false"))',
        "            pass",
        'tests/postgres/test_durability.py -k "role"',
    ),
    Mutant(
        "weak-server-is-not-told",
        "src/holdfast/stores/postgres/store.py",
        '        if fsync == "off":\n',
        "        if False:\n",
        'tests/postgres/test_durability.py -k "doctor"',
    ),
    Mutant(
        "payload-of-any-type",
        "src/holdfast/stores/sql_rows.py",
        " and type(payload) is bytes",
        "",
        'tests/damage/test_sqlite_damage.py -k "another_type"',
    ),
    Mutant(
        "checkpoint-does-not-wait-for-writes",
        "src/holdfast/integrations/langgraph/saver.py",
        "            if put.after is not None:\n",
        "            if False:\n",
        'tests/integrations/langgraph/test_writers.py -k "waits_for_what"',
    ),
    Mutant(
        "late-writes-wait-in-vain",
        "src/holdfast/integrations/langgraph/thread_writer.py",
        '            if self._before_last.get(data["ns"]) == data["of"]:',
        "            if False:",
        'tests/integrations/langgraph/test_writers.py -k "come_after" --timeout 20',
    ),
    # A process that is stopped in the middle of a write
    Mutant(
        "opening-waits-for-the-writer",
        "src/holdfast/stores/sqlite/file.py",
        "            if self._version_of(db) != migrations()[-1][0]:\n",
        "            if not hasattr(self, '_reader'):\n",
        "tests/processes/test_stopped_writers.py",
    ),
    Mutant(
        "nobody-is-said-to-hold-the-lock",
        "src/holdfast/stores/sqlite/transactions.py",
        "        os.pwrite(self.fd, _MARK.pack(self._pid, time.time()), 0)\n",
        "",
        'tests/engine/test_sqlite.py -k "since_it_took_the_lock"',
    ),
    # A store that is replaced while it is open
    Mutant(
        "older-contents-are-written-to",
        "src/holdfast/stores/sqlite/transactions.py",
        "        elif self._identity.is_older():\n",
        "        elif False:\n",
        'tests/processes/test_restored.py -k "copied"',
    ),
    Mutant(
        "another-file-is-not-noticed",
        "src/holdfast/stores/sqlite/transactions.py",
        "        if (found.st_dev, found.st_ino) != self._identity.inode:\n            return None\n",
        "",
        'tests/processes/test_restored.py -k "renamed"',
    ),
    Mutant(
        "file-seen-before-a-checkpoint-counts-as-older",
        "src/holdfast/stores/sqlite/identity.py",
        "        if stamp is not None and stamp < seen:",
        "        if stamp is not None and stamp < self._stamp:",
        'tests/processes/test_restored.py -k "another_thread"',
    ),
    Mutant(
        "threads-are-not-looked-at-in-one-moment",
        "src/holdfast/engine/workflow/execution.py",
        (
            "        with self.threads_lock:  # one moment: whoever rests has begun what it waits for\n"
            "            if any(pool.is_starting for pool in self.pools):\n"
        ),
        "        with suppress():\n            if any(pool.is_starting for pool in self.pools.copy()):\n",
        'tests/workflows/test_branches.py -k "slow_look"',
    ),
    Mutant(
        "log-of-another-file-is-used",
        "src/holdfast/stores/sqlite/identity.py",
        "        if has_log:",
        "        if False:",
        'tests/processes/test_restored.py -k "renamed"',
    ),
    Mutant(
        "log-of-a-restored-file-is-refused",
        "src/holdfast/stores/sqlite/identity.py",
        "        self._note(stamp)\n        return None\n",
        "        return None\n",
        'tests/processes/test_restored.py -k "its_own_log"',
    ),
    Mutant(
        "log-of-a-new-file-is-refused",
        "src/holdfast/stores/sqlite/file.py",
        "                os.unlink(self._notes)  # of a file that was removed\n",
        "                pass\n",
        'tests/processes/test_restored.py -k "its_own_log"',
    ),
    Mutant(
        "row-of-the-version-before-is-damaged",
        "src/holdfast/stores/sqlite/rows.py",
        "    if type(until) is int and boot is None and ends is None and checksum is None:\n",
        "    if False:\n",
        'tests/engine/test_leases.py -k "judged_by_the_wall_clock"',
    ),
    Mutant(
        "lock-of-another-user-is-an-error",
        "src/holdfast/stores/locks.py",
        "        except (FileNotFoundError, PermissionError):\n            return None\n",
        "        except FileNotFoundError:\n            return None\n",
        'tests/damage/test_full_disk.py -k "looked_at"',
    ),
    Mutant(
        "log-before-a-power-failure-is-refused",
        "src/holdfast/stores/sqlite/identity.py",
        "            return int(stamp) if int(boot) and int(boot) == SystemClock().boot else 0\n",
        "            return int(stamp)\n",
        'tests/processes/test_restored.py -k "reboot"',
    ),
    Mutant(
        "restore-not-noticed-by-a-heartbeat",
        "src/holdfast/stores/postgres/store.py",
        "        if before is not None and before < known:",
        "        if False:",
        "tests/postgres/test_restored.py",
    ),
]
