"""The mutants of importers: nothing twice, nothing foreign touched, nothing read outside of the folder. See
mutants_table.py.
"""

from mutants_table import Mutant

IMPORTERS = "src/holdfast/importers"
TESTS = "tests/importers"

MUTANTS: list[Mutant] = [
    # An import that was broken off, and the next one
    Mutant(
        "import-writes-everything-again",
        f"{IMPORTERS}/writing.py",
        "for part in plan.parts[made:]:",
        "for part in plan.parts:",
        f'{TESTS}/test_crashes.py -k "crash_at_any_point and memory"',
    ),
    Mutant(
        "import-goes-on-with-what-somebody-else-wrote",
        f"{IMPORTERS}/writing.py",
        "for seq, part in enumerate(plan.parts[:made], 1):",
        "for seq, part in enumerate(plan.parts[:0], 1):",
        f'{TESTS}/test_crashes.py -k "somebody_went_on and memory"',
    ),
    Mutant(
        "import-leaves-half-of-what-was-refused",
        f"{IMPORTERS}/writing.py",
        "    run.delete()\n    raise Conflict(problem)",
        "    raise Conflict(problem)",
        f'{TESTS}/test_importing.py -k "leaves_nothing_behind"',
    ),
    Mutant(
        "import-takes-another-run-for-its-own",
        f"{IMPORTERS}/writing.py",
        "if info.tags.get(TAG) != plan.system:",
        "if False:",
        f'{TESTS}/test_importing.py -k "another_run_of_the_same_id and memory"',
    ),
    # Files from outside
    Mutant(
        "import-follows-links-out-of-the-folder",
        f"{IMPORTERS}/reading.py",
        "if os.path.commonpath([real, self.root]) != self.root:",
        "if False:",
        f'{TESTS}/test_importing.py -k "links_out"',
    ),
    Mutant(
        "import-reads-what-is-no-file",
        f"{IMPORTERS}/reading.py",
        "if not stat.S_ISREG(os.fstat(opened).st_mode):",
        "if False:",
        f'{TESTS}/test_importing.py -k "no_file_is_told"',
    ),
    Mutant(
        "import-stops-at-a-torn-line",
        f"{IMPORTERS}/wesichain.py",
        "error.why)\n                continue",
        "error.why)\n                return",
        f'{TESTS}/test_wesichain.py -k "torn_line and memory"',
    ),
    # What the other system meant
    Mutant(
        "import-takes-an-abandoned-future-for-the-latest",
        f"{IMPORTERS}/mur.py",
        "key=lambda one: (one.at, one.step)",
        "key=lambda one: one.step",
        f'{TESTS}/test_mur.py -k "abandoned_future and memory"',
    ),
    Mutant(
        "import-reads-stale-marks",
        f"{IMPORTERS}/car.py",
        "if path in paused or",
        "if path or",
        f'{TESTS}/test_car.py -k "stale_mark and memory"',
    ),
    Mutant(
        "import-lets-two-effects-share-a-key",
        f"{IMPORTERS}/brainwires.py",
        'while f"{key} ({times[key]})" in used:',
        "while False:",
        f'{TESTS}/test_brainwires.py -k "logged_twice and memory"',
    ),
]
