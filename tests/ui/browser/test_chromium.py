"""Whether there is a browser at all. Without one, this says so once, in place of all the other tests here."""

from __future__ import annotations

import pytest
from browsing import NO_CHROMIUM, chromium


def test_there_is_a_browser() -> None:
    if chromium() is None:
        pytest.skip(NO_CHROMIUM)
