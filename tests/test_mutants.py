"""The tables of mutants fit the code: each names text that is there, so that `make mutants` can break it."""

from pathlib import Path

import pytest


def test_each_mutant_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import mutants

    assert mutants.faults_of_table(mutants.MUTANTS) == []
