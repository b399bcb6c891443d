"""Drawings: what they show, that any name can stand in them, and that they need nothing from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ExtraMissing
from holdfast.graph.draw.layers import backward, levels_of
from holdfast.graph.draw.layout import Place, Size, layout
from holdfast.graph.draw.mermaid import mermaid
from holdfast.graph.draw.sketch import Sketch, readable, sketch
from holdfast.graph.draw.svg import svg
from holdfast.graph.draw.svg_path import Path
from holdfast.graph.model import END, Definition, Quorum
from holdfast.graph.topology import topology

from .definitions import definitions, graph_of

SVG = "{http://www.w3.org/2000/svg}"


def choose(state: Any) -> str:
    raise NotImplementedError


ALL_KINDS = topology(
    graph_of(
        [
            "plan",
            {"name": "fetch", "kind": "map", "over": "items", "limit": 8},
            {"name": "review", "kind": "graph"},
            {"name": "collect", "join": Quorum(2)},
            {"name": "publish", "until": bool, "undo": "m:f"},
        ],
        ["plan fetch", "plan review", "fetch collect", "review collect", "collect publish?approved"],
        [("publish", choose, ["plan", END])],
        before=frozenset(["publish"]),
        goal=bool,
    )
)
PATH = Path(
    visits={"plan": 2, "fetch": 1, "review": 1},
    edges=frozenset([("plan", "fetch"), ("plan", "review"), ("fetch", "collect")]),
    current=frozenset(["collect"]),
    failed=frozenset(["review"]),
)


# --- Mermaid ----------------------------------------------------------------------------------------------------------


def test_mermaid() -> None:
    assert (
        mermaid(ALL_KINDS)
        == """\
flowchart TD
    accTitle: Graph research
    start(["start"])
    n0("plan")
    n1[/"fetch<br/>for each of items<br/>8 at once"/]
    n2[["review<br/>graph"]]
    n3("collect<br/>2 of 2 to arrive")
    n4("publish<br/>repeated until done<br/>pauses before<br/>can be undone")
    r0{"choose"}
    stop(["end or goal"])
    start --> n0
    n3 -.->|"approved"| n4
    n1 --> n3
    n0 --> n1
    n0 --> n2
    n2 --> n3
    n4 --> r0
    r0 -.-> n0
    r0 -.-> stop
    n3 -.->|"otherwise"| stop
"""
    )


def test_mermaid_shows_a_path() -> None:
    text = mermaid(ALL_KINDS, PATH)
    assert 'n0("plan<br/>×2")' in text
    assert "class start,n0,n1 done" in text
    assert "class n3 here" in text
    assert "class n2 failed" in text
    assert re.search(r"linkStyle 0,2,3,4 stroke", text)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("end", "end"),
        ('say "hi"', "say #34;hi#34;"),
        ("a[b](c){d}", "a#91;b#93;#40;c#41;#123;d#125;"),
        ("<b>&amp;", "#60;b#62;#38;amp#59;"),
        ("`x`|y", "#96;x#96;#124;y"),
        ("1. first", "1#46; first"),
        ("- item", "#45; item"),
        ("__init__", "#95;#95;init#95;#95;"),
        ("fetch_all", "fetch_all"),
        ("größer 漢字", "größer 漢字"),
        ("a\nb\x00", "a#65533;b#65533;"),
        ("# head", "#35; head"),
        ("%%{init}%%", "#37;#37;#123;init#125;#37;#37;"),
    ],
)
def test_mermaid_takes_any_name(name: str, written: str) -> None:
    assert f'    n0("{written}")\n' in mermaid(topology(graph_of([name])))


# --- SVG --------------------------------------------------------------------------------------------------------------


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_svg_says_what_is_there() -> None:
    words = texts(svg(ALL_KINDS))
    for word in (
        "start",
        "plan",
        "fetch",
        "review",
        "collect",
        "publish",
        "choose",
        "approved",
        "otherwise",
        "end or goal",
    ):
        assert word in words
    assert "for each of items · 8 at once" in words
    assert "2 of 2 to arrive" in words


def test_svg_needs_nothing_from_outside() -> None:
    picture = svg(ALL_KINDS, PATH)
    assert re.findall(r"[a-z]+://[^\s\"']*", picture) == ["http://www.w3.org/2000/svg"]
    for word in ("<script", "href", "url(", "@import", "<image", "<foreignObject", " id="):
        assert word not in picture


def test_svg_can_be_read_aloud_and_in_the_dark() -> None:
    root = ElementTree.fromstring(svg(ALL_KINDS, PATH))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "Graph research"
    words = root.findtext(f"{SVG}desc") or ""
    assert "plan to fetch;" in words
    assert "Done: start, plan ×2, fetch." in words
    assert "Here: collect here." in words
    assert "Failed: review failed." in words
    assert "prefers-color-scheme:dark" in (root.findtext(f"{SVG}style") or "")


def test_svg_shows_a_path() -> None:
    picture = svg(ALL_KINDS, PATH)
    assert {"×2", "here", "failed"} <= set(texts(picture))
    assert picture.count('class="taken"') == 4
    assert 'class="taken"' not in svg(ALL_KINDS)


def test_a_long_name_is_broken_and_kept_whole_in_the_title() -> None:
    name = "collect_all_customer_invoices_of_the_last_quarter_and_of_the_one_before_that"
    picture = svg(topology(graph_of([name])))
    assert "collect_all_customer_" in texts(picture)
    assert name not in texts(picture)
    assert name in [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}title")]


def test_drawing_without_igraph_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(
        ExtraMissing,
        match=re.escape("an SVG drawing needs a package that is not installed; run: pip install 'holdfast[draw]'"),
    ):
        svg(ALL_KINDS)


def test_the_same_graph_gives_the_same_picture_in_any_process() -> None:
    code = "import json, sys; from holdfast.graph.draw.svg import svg; print(svg(json.loads(sys.argv[1])), end='')"
    for seed in ("1", "2"):
        made = subprocess.run(
            [sys.executable, "-c", code, json.dumps(ALL_KINDS)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert made.stdout == svg(ALL_KINDS)


# --- places -----------------------------------------------------------------------------------------------------------


def placed(drawn: Sketch) -> tuple[dict[str, Place], list[Place]]:
    found = layout(
        drawn, {mark.id: Size(90, 40) for mark in drawn.marks}, {line.label: Size(60, 18) for line in drawn.lines}
    )
    return found.marks, [route.label for route in found.routes if route.label is not None and route.line.label]


def apart(one: Place, two: Place) -> bool:
    beside = abs(one.x - two.x) >= (one.width + two.width) / 2 - 0.01
    return beside or abs(one.y - two.y) >= (one.height + two.height) / 2 - 0.01


def test_a_diamond_is_even() -> None:
    shape = topology(
        graph_of(["split", "left", "right", "join"], ["split left", "split right", "left join", "right join"])
    )
    marks, _ = placed(sketch(shape))
    split, left, right, join = (marks[f"n{number}"] for number in range(4))
    assert split.x == pytest.approx(join.x)
    assert left.y == right.y
    assert sorted([left.x - split.x, right.x - split.x]) == pytest.approx([-59, 59])


def test_a_chain_is_straight() -> None:
    marks, _ = placed(sketch(topology(graph_of("abcdef", [f"{a} {b}" for a, b in zip("abcde", "bcdef", strict=True)]))))
    assert len({place.x for place in marks.values()}) == 1


def test_what_is_nearly_above_one_another_is_exactly_so() -> None:
    edges = ["a b", "b c", "c b?weak", "c d?fine", "d e", "e d?typos", "e a?wrong", "e f?right"]
    marks, _ = placed(sketch(topology(graph_of("abcdef", edges))))
    assert len({marks[f"n{number}"].x for number in range(3)}) == 1
    assert len({marks[f"n{number}"].x for number in range(3, 6)}) == 1


def test_a_loop_leads_back_up() -> None:
    drawn = sketch(topology(graph_of(["z", "y", "x"], ["z y", "y x", "x z?again", "y y?once"])))
    assert sorted((line.source, line.target) for line in backward(drawn)) == [("n1", "n1"), ("n2", "n0")]


@settings(max_examples=30, deadline=None)
@given(definitions())
def test_nothing_covers_anything(definition: Definition) -> None:
    drawn = sketch(topology(definition))
    marks, labels = placed(drawn)
    assert marks.keys() == {mark.id for mark in drawn.marks}
    assert all(apart(one, two) for one, two in combinations([*marks.values(), *labels], 2))
    assert len(labels) == sum(bool(line.label) for line in drawn.lines)


@settings(max_examples=30, deadline=None)
@given(definitions())
def test_lines_lead_down_but_for_those_that_lead_back(definition: Definition) -> None:
    drawn = sketch(topology(definition))
    back = backward(drawn)
    levels = levels_of(drawn, back)
    for line in drawn.lines:
        if line in back:
            assert levels[line.target] < levels[line.source] or line.target == line.source
        else:
            assert levels[line.target] > levels[line.source]
    assert all(level < levels["stop"] for name, level in levels.items() if name != "stop")


# --- any graph --------------------------------------------------------------------------------------------------------


@st.composite
def drawings(draw: st.DrawFn) -> tuple[Definition, Path | None]:
    definition = draw(definitions())
    names = st.sampled_from([*definition.nodes, END, "gone"])
    path = st.builds(
        Path,
        visits=st.dictionaries(names, st.integers(0, 99), max_size=4),
        edges=st.frozensets(st.tuples(names, names), max_size=6),
        current=st.frozensets(names, max_size=2),
        failed=st.frozensets(names, max_size=2),
    )
    return definition, draw(st.none() | path)


@settings(max_examples=30, deadline=None)
@given(drawings())
def test_any_graph_can_be_drawn(drawing: tuple[Definition, Path | None]) -> None:
    definition, path = drawing
    shape = topology(definition)
    root = ElementTree.fromstring(svg(shape, path))  # well-formed
    shown = "".join(element.text or "" for element in root.iter(f"{SVG}text"))
    chart = mermaid(shape, path)
    for number, name in enumerate(definition.nodes):
        assert "".join(readable(name).split()) in "".join(shown.split())
        assert re.search(rf"^    n{number}[(\[]", chart, re.MULTILINE)
    assert all(line.startswith("    ") for line in chart.splitlines()[1:])
