"""What a graph that fails, is rolled back or was answered looks like on the page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import voyages
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast
from holdfast.errors import ExtraMissing


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    voyages.deadly.clear()
    with holdfast.open("memory://") as opened:
        yield opened
    voyages.deadly.clear()


@pytest.fixture
def pages(serving: Callable[[Holdfast], TestClient], hf: Holdfast) -> TestClient:
    return serving(hf)


def words(text: str) -> str:
    """What a page says, without how."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text.partition("<main")[2])).split())


def rows(text: str) -> list[str]:
    """What the rows of the timeline say."""
    return [words(f"<main{row}") for row in re.findall(r'role="row" data-row(.*?)class="t-took"', text, re.DOTALL)]


def test_a_node_that_can_be_undone_has_one_row(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(voyages.ship, {"log": []}, id="s")
    sent = [row for row in rows(pages.get("/runs/s").text) if "send" in row]
    assert len(sent) == 1
    run.rollback(to=0)
    [sent_back] = [row for row in rows(pages.get("/runs/s").text) if "send" in row]
    assert "undone" in sent_back


@pytest.mark.parametrize("graph", [voyages.ship, voyages.there_and_back])
def test_a_failed_graph_names_its_node(hf: Holdfast, pages: TestClient, graph: Any) -> None:
    run = hf.start(graph, {"log": []}, id="f")
    run.answer("pigeon")
    run.resume()
    text = pages.get("/runs/f").text
    assert "What it failed with RuntimeError: no pigeons failed at check" in words(text)
    [failed] = [row for row in rows(text) if "check" in row]
    assert "✗ check failed" in failed
    assert "RuntimeError: no pigeons" in failed
    assert "l-failed" in text.split('role="row" data-row')[-1 if graph is voyages.ship else -2]


def test_a_rollback_that_died_is_told(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(voyages.ship, {"log": []}, id="d")
    voyages.deadly.append("yes")
    with pytest.raises(voyages.Dies):
        run.rollback(to=0)
    told = "is being rolled back to entry 0; whoever resumes it finishes that"
    assert told in words(pages.get("/runs/d").text)
    worker = hf.client.engine.worker.ready()
    hf.client.store.claim(run.uid, worker)
    assert "is being rolled back to entry 0 Cancel" in words(pages.get("/runs/d").text)
    hf.client.store.beat(worker, 0)
    for path in ("/runs/d", "/"):
        shown = words(pages.get(path).text)
        assert "✗ process died" in shown
        assert "is being rolled back to entry 0; its process has died" in shown
    [rolls] = [row for row in rows(pages.get("/runs/d").text) if "rolls back" in row]
    assert "not done" in rolls


def test_an_answer_is_shown_until_it_is_taken(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(voyages.ship, {"log": []}, id="a")
    run.answer("train", by="gina")
    assert "By what? answered: train by gina (not taken yet)" in words(pages.get("/runs/a").text)
    run.resume()
    assert "not taken yet" not in words(pages.get("/runs/a").text)


def test_what_is_said_of_undos(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(voyages.ship, {"log": []}, id="u")
    assert "send#1 yes, by voyages:unsend" in words(pages.get("/runs/u/effects").text)
    run.rollback(to=0)
    assert "↩ undone send#1 already" in words(pages.get("/runs/u/effects").text)


def test_a_graph_that_cannot_be_drawn_says_what_to_install(
    hf: Holdfast, pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.start(voyages.ship, {"log": []}, id="g")

    def missing(*_: object, **__: object) -> str:
        raise ExtraMissing("an SVG drawing", "draw")

    monkeypatch.setattr("holdfast.ui.pages.run.svg", missing)
    told = words(pages.get("/runs/g").text)
    assert "Graph an SVG drawing needs a package that is not installed; run: pip install 'holdfast[draw]'" in told
