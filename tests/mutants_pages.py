"""The mutants of the web page. See mutants_table.py."""

from mutants_table import Mutant

UI = "src/holdfast/ui"
PRESENT = "src/holdfast/present"
TESTS = "tests/ui"

MUTANTS: list[Mutant] = [
    # What came from a run is text, and nothing leads away
    Mutant(
        "pages-do-not-escape",
        f"{UI}/app.py",
        "autoescape=True",
        "autoescape=False",
        f"{TESTS}/test_page_acts.py -k script",
    ),
    Mutant(
        "pages-lead-to-other-sites",
        f"{UI}/pages/acts.py",
        "ask.go(own_path(back) if back",
        "ask.go(back if back",
        f"{TESTS}/test_page_acts.py -k within",
    ),
    # Nothing is done that was not seen
    Mutant(
        "pages-roll-back-what-was-not-seen",
        f"{UI}/pages/acts.py",
        'body=body, if_match=ask.one("etag")).report',
        "body=body, if_match=ANY).report",
        f"{TESTS}/test_page_acts.py -k rollback",
    ),
    Mutant(
        "pages-roll-back-unasked",
        f"{UI}/pages/acts.py",
        'if to is None or not ask.one("sure"):',
        "if to is None:",
        f"{TESTS}/test_page_acts.py -k rollback",
    ),
    # Live, in any number of tabs, and without taking away what somebody types
    Mutant(
        "pages-open-a-stream-per-tab",
        f"{UI}/static/page.js",
        "if (window.SharedWorker) listenTogether();\n    else listenAlone();",
        "listenAlone();",
        f"{TESTS}/browser/test_watching.py -k ten_tabs",
    ),
    Mutant(
        "pages-take-away-what-is-typed",
        f"{UI}/static/page.js",
        "if (inUse) return warn(region, fresh);",
        "",
        f'{TESTS}/browser/test_acting.py -k "types or two_who"',
    ),
    # For everybody
    Mutant(
        "pages-too-wide-for-a-phone",
        f"{UI}/static/page.css",
        "display: grid; grid-template-columns: minmax(0, 1fr); gap: 12px; }\n.question .asked",
        "display: grid; gap: 12px; }\n.question .asked",
        f"{TESTS}/browser/test_every_page.py -k phone",
    ),
    Mutant(
        "pages-too-pale",
        f"{UI}/static/page.css",
        "--dim: #55626f;",
        "--dim: #98a4b0;",
        f"{TESTS}/browser/test_every_page.py -k axe",
    ),
    # Long runs
    Mutant(
        "pages-read-all-of-a-long-run",
        f"{PRESENT}/timeline.py",
        "lo = max(0, hi - WINDOW + 1)",
        "lo = 0",
        f"{TESTS}/test_pages.py -k long_run",
    ),
    # The terminal and the page say the same, and that is true
    Mutant(
        "present-shows-the-input-of-old",
        f"{PRESENT}/input.py",
        "seq, given = record.chapter, run.entry(record.chapter).contents",
        "seq, given = 0, run.entry(0).contents",
        "tests/present -k input",
    ),
    Mutant(
        "present-counts-no-next-attempt",
        f"{PRESENT}/timeline.py",
        'return self.attempts + (self.status == "retrying")',
        "return self.attempts",
        "tests/present -k order",
    ),
    Mutant(
        "present-forgets-what-children-ask",
        f"{PRESENT}/questions.py",
        'if any(awaited(hf, child) == "answer" for child in waiting):',
        "if False:",
        "tests/present -k word",
    ),
    # Timelines and forms
    Mutant(
        "pages-branches-begin-late",
        f"{PRESENT}/timeline.py",
        'self._fans.setdefault(f"{around}/{call}", self._since(around)) if dot',
        "self._clock.get(around, self._now) if dot",
        f"{TESTS}/test_timeline.py",
    ),
    Mutant(
        "pages-lose-problems-inside-a-field",
        f"{UI}/forms.py",
        'rest[:1] in (":", "[", ".")',
        'rest[:1] in (":",)',
        f"{TESTS}/test_forms.py",
    ),
    Mutant(
        "forks-by-hand-keep-the-old-state",
        "src/holdfast/engine/control/edit.py",
        '"state": run.codec.encode(update, "state")',
        '"state": saved.tree["state"] if saved else None',
        "tests/engine/test_entries.py -k memory",
    ),
]
