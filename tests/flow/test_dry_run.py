"""A dry run shows what would happen, with every template filled in as far as it is known, and does nothing."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import flow
from holdfast.errors import VarsRefused


def test_everything_is_filled_in_and_nothing_is_done(load: Any, memdir: Path) -> None:
    (memdir / "inner.yaml").write_text(
        "name: inner\nvars: {x: }\nsteps:\n  - {id: i, run: 'echo {{ vars.x | quote }}'}\n"
    )
    loaded = load(
        "vars: {v: 1.2, env: prod, days: [a, b]}\nsecrets: [TOKEN]\nsteps:\n"
        "  - {id: build, title: Build it, run: 'touch did-{{ vars.v }} {{ secrets.TOKEN | quote }}',\n"
        "     undo: 'rm {{ steps.build.stdout | quote }}'}\n"
        "  - {id: off, run: touch off, when: vars.env == 'test'}\n"
        "  - {id: maybe, run: 'touch {{ steps.build.stdout | trim | quote }}', when: steps.build.exit_code == 0}\n"
        "  - {id: known, run: 'true', when: steps.off.status == 'skipped'}\n"
        "  - {id: days, for_each: '{{ vars.days }}', run: 'echo {{ item | quote }}'}\n"
        "  - {id: many, for_each: '{{ range(30) | list }}', run: 'true'}\n"
        "  - {id: lines, for_each: '{{ steps.build.stdout.splitlines() }}', run: 'echo {{ item | quote }}'}\n"
        "  - {id: note, set: {v: '{{ steps.build.stdout }}', w: 7}}\n"
        "  - {id: used, run: 'echo {{ vars.v | quote }} {{ vars.w }}', env: {E: '{{ vars.env }}'}, retry: 2,\n"
        "     timeout: 5s, on_failure: {goto: off}}\n"
        "  - {id: ask, ask: 'Ship {{ vars.env }}?', breakpoint: true}\n"
        "  - {id: http, http: {url: 'http://h/{{ vars.env }}', method: POST}}\n"
        "  - {id: inner, flow: inner.yaml, with: {x: '{{ vars.env }}'}}\n"
        "  - {id: wait, wait: 5m}\n"
        "  - {id: poll, until: steps.poll.exit_code == 0, run: 'echo {{ index }}', loop: 3}\n"
    )
    planned = flow.dry_run(loaded, {"env": "live"})
    told = [(one.id, one.depth, one.happens, one.what) for one in planned]
    assert told == [
        ("build", 0, True, "touch did-1.2 <secret TOKEN>"),
        ("off", 0, False, "skipped"),
        ("maybe", 0, None, "touch <steps.build.stdout>"),
        ("known", 0, True, "true"),
        ("days", 0, True, "echo a"),
        ("days", 0, True, "echo b"),
        *[("many", 0, True, "true")] * 10,
        ("many", 0, True, "… and 20 more items"),
        ("lines", 0, True, "echo <item>"),
        ("note", 0, True, "v = <steps.build.stdout>, w = 7"),
        ("used", 0, True, "echo <vars.v> 7"),
        ("ask", 0, True, "Ship live?"),
        ("http", 0, True, "POST http://h/live"),
        ("inner", 0, True, "inner.yaml"),
        ("i", 1, True, "echo live"),
        ("wait", 0, True, "for 5m"),
        ("poll", 0, True, "echo <index>"),
    ]
    by_id = {one.id: one for one in planned}
    assert by_id["build"].undo == "rm <steps.build.stdout>"
    assert by_id["build"].title == "Build it"
    assert by_id["http"].filled == {"http": {"method": "POST", "url": "http://h/live"}}
    assert by_id["used"].filled == {"run": "echo <vars.v> 7", "env": {"E": "live"}, "cwd": str(memdir)}
    assert by_id["used"].details == ("tried again up to 2×", "for no longer than 5 s", "if it fails: goto off")
    assert by_id["poll"].details == ("up to 3 rounds until steps.poll.exit_code == 0",)
    assert by_id["ask"].place.endswith("flow.yaml:16:5")
    assert sorted(path.name for path in memdir.iterdir()) == ["flow.yaml", "inner.yaml"]


def test_a_template_that_is_refused_is_shown_as_such(load: Any) -> None:
    [one] = flow.dry_run(load("vars: {v: [1]}\nsteps:\n  - {id: a, run: 'echo {{ vars.v[7] | quote }}'}\n"))
    assert one.what.startswith("<")


def test_variables_are_checked(load: Any) -> None:
    with pytest.raises(VarsRefused):
        flow.dry_run(load("vars: {v: }\nsteps:\n  - {id: a, run: 'true'}\n"))
