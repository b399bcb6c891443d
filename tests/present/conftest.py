"""The same store at the terminal and on the page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import gallery
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast
from holdfast.cli import cli
from holdfast.ui import create_app
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.security import Tokens

ACT, VIEW = "a-token-for-those-who-act", "a-token-for-those-who-look"


class Both:
    """What the terminal and the page say about the runs of a store."""

    def __init__(self, hf: Holdfast, url: str, ids: list[str]) -> None:
        self.hf, self.ids = hf, ids
        self._url = url
        app = create_app(hf, tokens=Tokens(ACT, VIEW, name="operator"), hosts=["testserver"])
        self._client = TestClient(app, headers={"Authorization": f"Bearer {ACT}"})

    def terminal(self, *words: str) -> str:
        done = CliRunner(env={"HOLDFAST_STORE": self._url, "COLUMNS": "300"}).invoke(cli, list(words))
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.terminal(*words, "--json"))

    def page(self, id: str, *parts: str) -> str:
        answer = self._client.get(run_url(id, *parts))
        assert answer.status_code == 200, answer.text
        return answer.text

    def api(self, path: str) -> Any:
        return self._client.get(f"/api/v1{path}").json()

    def list_page(self) -> str:
        return self._client.get("/").text


def words(text: str) -> str:
    """What a part of a page says, without how."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def region(page: str, name: str) -> str:
    """A part of a page."""
    return page.partition(f'id="region-{name}"')[2].partition("data-region")[0].partition(">")[2]


def head(page: str) -> str:
    return region(page, "head")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder: Path = tmp_path_factory.mktemp("gallery")
    url = f"sqlite:///{folder / 'runs.db'}"
    with holdfast.open(url) as hf, pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.present.status.SOON", timedelta(seconds=-1))  # the same, however long the tests take
        ids = gallery.fill(hf, folder)
        yield Both(hf, url, ids)
