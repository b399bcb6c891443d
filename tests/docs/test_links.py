"""What the documents point to is there: files, headings and tests."""

import re
from pathlib import Path

import pytest

from holdfast.kernel.model import Kind

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`")


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(document.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_that_are_named_exist(document: Path) -> None:
    missing = [
        f"{path}::{name}"
        for path, name in TEST.findall(document.read_text())
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert missing == []


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/*/*.md")]
    assert [page for page in pages if f"({page})" not in index] == []


def test_every_guarantee_names_its_tests() -> None:
    text = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
    numbers = re.findall(r"^\*\*(\d+)\. ", text, flags=re.MULTILINE)
    parts = re.split(r"^\*\*\d+\. ", text, flags=re.MULTILINE)[1:]
    assert numbers == [str(number) for number in range(1, 29)]
    assert all(TEST.search(part) for part in parts)


def test_every_defence_names_its_tests() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    _, _, defences = text.partition("## What Holdfast defends against")
    parts = re.split(r"^\*\*", defences.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    assert len(parts) >= 10
    assert [part for part in parts if not TEST.search(part)] == []
    for linking in ("README.md", "docs/index.md"):
        assert "SECURITY.md)" in (ROOT / linking).read_text()


def test_every_kind_of_entry_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text()
    assert [str(kind) for kind in Kind if f"`{kind}`" not in page] == []


def test_pictures_load_nothing_from_outside() -> None:
    for picture in (ROOT / "docs").glob("**/*.svg"):
        text = picture.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text
        assert "href" not in text


def test_every_event_of_the_log_is_explained() -> None:
    """What is told to the log by name stands in the table of docs/howto/observe.md."""
    page = (ROOT / "docs" / "howto" / "observe.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "src" / "holdfast" / "engine").glob("*.py"))
    told = set(re.findall(r'"((?:run|schedule|step|worker)\.[a-z_]+)"', code)) | {"run.completed", "run.cancelled"}
    assert [event for event in sorted(told) if f"`{event}`" not in page] == []
