"""A run with tasks that another Python began (see write_tasks.py) is resumed by this one: nothing is executed again."""

import gzip
from pathlib import Path

import golden_tasks as golden
import pytest

import holdfast
from holdfast import Status

HERE = Path(__file__).parent


@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_a_journal_of_another_python_is_resumed(memdir: Path, python: str) -> None:
    (memdir / "runs.db").write_bytes(gzip.decompress((HERE / f"tasks-{python}.db.gz").read_bytes()))
    golden.charged.clear()
    with holdfast.open(f"sqlite:///{memdir / 'runs.db'}") as hf:
        run = hf.start(golden.serves, id="r")
        assert run.status is Status.WAITING, run.info().reason
        assert len([step for step in run.steps() if "charge#" in step.key]) == 4
        assert golden.charged == []
        while questions := list(run.questions()):
            for question in questions:
                run.answer("yes", question=question)
            run.resume()
        assert run.result(timeout=20) == ["a", "b", "c"]
    assert golden.charged == ["c", "c checked"]
