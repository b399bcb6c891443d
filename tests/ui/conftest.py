"""A server in the test's own process, without a network: requests reach the application as a server hands them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import office
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast
from holdfast.ui import create_app
from holdfast.ui.paths import part
from holdfast.ui.security import Tokens
from holdfast.ui.site import Limits

ACT, VIEW = "a-token-for-those-who-act", "a-token-for-those-who-look"
HOST = "testserver"

Client = Callable[..., TestClient]


@pytest.fixture
def office_hf(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Holdfast]:
    """A store in memory with a run that asks, one that has failed, and one that is driven by hand."""
    name = f"memory://office-{id(request)}"
    with holdfast.open(name) as hf:
        hf.start(office.fulfil, "A-17", 4200, id="orders/A 17%", tags={"customer": "17"})
        hf.start(office.broken, id="broken")
        hf.run("by hand", workflow="loop").save({"n": 1})
        yield hf


@pytest.fixture
def serving() -> Callable[..., TestClient]:
    """Serves any open store; a client who may act there."""

    def serve(hf: Holdfast, **how: Any) -> TestClient:
        app = create_app(hf, tokens=Tokens(ACT, VIEW, name="operator"), hosts=[HOST], **how)
        return TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {ACT}"})

    return serve


@pytest.fixture
def app(office_hf: Holdfast) -> Starlette:
    return create_app(office_hf, tokens=Tokens(ACT, VIEW, name="operator"), hosts=[HOST], limits=Limits(body=4096))


@pytest.fixture
def client(app: Starlette) -> Iterator[Client]:
    """Makes clients of the server: with a token, or without one; each has its own cookies."""
    with ExitStack() as stack:
        # The first one has the server's event loop for its own; the others' requests run in loops of theirs.
        stack.enter_context(TestClient(app, raise_server_exceptions=False))

        def make(token: str | None = ACT, **how: Any) -> TestClient:
            headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
            made = TestClient(app, raise_server_exceptions=False, follow_redirects=False, headers=headers, **how)
            return made

        yield make


@pytest.fixture
def api(client: Client) -> TestClient:
    """A client of the API who may act."""
    return client()


@pytest.fixture
def order() -> str:
    """The path of the run that asks."""
    return f"/api/v1/runs/{part('orders/A 17%')}"
