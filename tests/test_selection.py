"""What `make test` leaves to `make test-all` is tried by it all the same, by a faster test."""

import pytest
from selection import UNCOVERED


def test_each_slow_test_names_a_faster_one(request: pytest.FixtureRequest) -> None:
    """Where the whole suite was collected; else nobody knows."""
    assert request.config.stash[UNCOVERED] == []
