"""Every page in a real browser: on a phone nothing is cut off or lies over something else; axe finds nothing serious;
and nothing that came from a run does anything but stand there.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import selling
from browsing import Held

from holdfast import Field, Holdfast
from holdfast.ui.pages.addresses import run_url

pytestmark = pytest.mark.needs("chromium")

Open = Callable[..., Held]
AXE = "axe-core@4.10.3"
NPM = Path(__file__).parents[1] / ".npm"

LONG = "a-very-long-id-" + "x" * 150

MEASURE = (Path(__file__).parent / "measure.js").read_text(encoding="utf-8")


@pytest.fixture
def filled(hf: Holdfast) -> list[str]:
    """A store with runs of every kind; the paths of all pages."""
    hf.start(selling.sell, "A-1", 4200, id="A-1", tags={"customer": "17", "region": "north of the river"})
    done = hf.start(selling.sell, "A-2", 4200, id="A-2")
    done.answer(selling.Shipping("post", 1.0), by="front desk")
    done.resume()
    done.fork(id="A-2 fork")
    done.rollback(to=3)
    hf.start(selling.broken, 3, id="broken")
    hf.start(selling.draft, {"text": "", "notes": []}, id="draft").result()
    hf.start(selling.house, ["kitchen", "attic"], id="house").result()
    hf.run(LONG, workflow="w" * 80, tags={"a": "b" * 120}).save({"deep": ["y" * 300]})
    asking = hf.run("asking")
    fields = [Field("text", description="words"), Field("number", "number", minimum=1), Field("sure", "boolean")]
    fields.append(Field("choice", options=tuple("abcdefgh")))
    asking.pause("Is this a question with several fields, and with a prompt that is rather long?", fields)
    hf.queue("mail", limit=3, per_worker=2, per_key=1, rate=(100, 60.0))
    hf.enqueue(selling.sell, "A-9", 1, queue="mail")
    hf.schedule(selling.room, "attic", cron="0 3 * * *", id="nightly", tz="Europe/Paris")
    holding = hf.run("held")
    holding.claim()
    paths = ["/", "/?status=waiting&q=a", "/questions", "/queues", "/schedules", "/workers", "/api", "/runs/nobody"]
    paths += [run_url(id) for id in ("A-1", "A-2", "broken", "draft", "house", LONG, "asking", "held")]
    paths += [run_url("A-1", part) for part in ("cancel", "effects", "family", "journal", "fork", "state")]
    paths += [run_url("A-2", "fork", answer="ask#1"), run_url("A-1", "rollback", to="0"), run_url("broken", "retry")]
    return [*paths, run_url("draft", "state", at=3), run_url("house", "family"), run_url("A-1", "entries", 1)]


def test_on_a_phone_nothing_is_cut_off_or_overlaps(filled: list[str], site: str, open_page: Open) -> None:
    page = open_page("/", viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True)
    wrong: dict[str, Any] = {}
    for path in filled:
        page.goto(site + path)
        if found := page.evaluate(MEASURE):
            wrong[path] = found
    assert wrong == {}


def test_between_a_phone_and_a_desk_nothing_is_too_wide(filled: list[str], site: str, open_page: Open) -> None:
    page = open_page("/", viewport={"width": 768, "height": 1024})
    wrong: dict[str, int] = {}
    for path in (path for path in filled if path.count("/") == 1):  # the lists, which have the most columns
        page.goto(site + path)
        for width in (720, 768, 900, 901, 1001):
            page.set_viewport_size({"width": width, "height": 1024})
            if (over := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
                wrong[f"{path} at {width}"] = over
    assert wrong == {}


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from npm; it is installed once."""
    file = NPM / "node_modules" / "axe-core" / "axe.min.js"
    NPM.mkdir(exist_ok=True)
    with open(NPM / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            command = [
                "npm",
                "install",
                "--prefix",
                str(NPM),
                "--no-save",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                AXE,
            ]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=120)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"npm cannot install axe-core: {error}")
    return file.read_text(encoding="utf-8")


def serious(page: Held, axe: str, only: str = "") -> list[str]:
    """What axe has against a page."""
    page.evaluate(axe)
    found = page.evaluate(f"axe.run({{{only}resultTypes: ['violations']}}).then(told => told.violations)")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.needs("npm")
def test_axe_finds_nothing_serious(filled: list[str], site: str, open_page: Open, axe: str) -> None:
    page = open_page("/", bypass_csp=True)
    wrong: dict[str, list[str]] = {}
    for path in [*filled, "/sign-in"]:
        page.goto(site + path)
        if found := serious(page, axe):
            wrong[path] = found
    assert wrong == {}


@pytest.mark.needs("npm")
def test_in_the_dark_everything_can_be_read(filled: list[str], site: str, open_page: Open, axe: str) -> None:
    page = open_page("/", color_scheme="dark", bypass_csp=True)
    wrong: dict[str, list[str]] = {}
    rolled, state = run_url("A-1", "rollback", to="0"), run_url("draft", "state", at=3)
    for path in ("/", "/questions", "/queues", "/runs/A-1", "/runs/A-2", "/runs/broken", "/runs/draft", rolled, state):
        page.goto(site + path)
        if found := serious(page, axe, "runOnly: ['color-contrast', 'link-in-text-block'], "):
            wrong[path] = found
    assert wrong == {}


EVIL = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>"


def test_a_script_in_every_field_of_a_run_only_stands_there(hf: Holdfast, site: str, open_page: Open) -> None:
    evil_run(hf)
    page = open_page("/")
    for path in evil_paths():
        page.goto(site + path)
        assert page.evaluate("window.hacked") is None, path
        assert page.locator("main script, main img").count() == 0, path


def evil_run(hf: Holdfast) -> None:
    """A run whose every text is a script."""
    run = hf.run(EVIL, workflow=EVIL, tags={EVIL: EVIL})
    run.save({EVIL: [EVIL]}, next=EVIL, node=EVIL)
    run.once(EVIL, str.upper, EVIL, target=EVIL, reversible=False)
    run.mark(EVIL + "2", EVIL, target=EVIL)
    run.pause(EVIL, [Field(EVIL, label=EVIL, description=EVIL, default=EVIL), Field("c", options=(EVIL, "b"))], EVIL)
    hf.run(f"{EVIL} failed").fail(EVIL)


def evil_paths() -> list[str]:
    paths = ["/", "/questions", "/?q=" + "%3Cscript%3E&workflow=%22%3E%3Cimg%3E"]
    for part in ("", "state", "effects", "family", "journal", "fork", "rollback?to=0", "cancel", "entries/1"):
        paths.append(f"{run_url(EVIL)}/{part}".rstrip("/"))
    return [*paths, run_url(f"{EVIL} failed")]
