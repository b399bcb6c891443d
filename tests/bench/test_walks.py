"""The walk of a plain step: how many modules it passes through, and that ARCHITECTURE.md shows it as it is."""

from pathlib import Path

from bench.walks import walks

ROOT = Path(__file__).resolve().parents[2]


def test_a_plain_step_passes_through_nine_modules_which_the_picture_shows() -> None:
    step, answer, rollback = walks()
    assert len(step.modules) <= 9, step.modules
    assert step.picture() in (ROOT / "ARCHITECTURE.md").read_text()
    assert answer.modules
    assert rollback.modules
