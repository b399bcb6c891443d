"""The pure parts of what measures: medians, ratios, turns, exponents, goals."""

import pytest

from bench.harness import AtLeast, Measured, exponent, in_turns, met, percentile, ratio


def test_a_figure_is_the_median_of_its_rounds_with_their_spread() -> None:
    figure = Measured.of([5.0, 1.0, 3.0, 2.0, 4.0], 10)
    assert figure == 30
    assert figure.spread == pytest.approx((14, 46))


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 2.5), (99, 3.97), (100, 4.0)])
def test_a_percentile_lies_between_values(percent: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == pytest.approx(value)


def test_a_ratio_is_that_of_the_rounds_and_not_of_the_medians() -> None:
    ours, theirs = [1.0, 10.0, 2.0], [2.0, 20.0, 1.0]  # the second round was slow for both
    assert ratio(ours, theirs) == 0.5


def test_rivals_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[tuple[str, int]] = []

    def rival(name: str, seconds: float | None) -> object:
        def run(round: int) -> float | None:
            order.append((name, round))
            return seconds

        return run

    times = in_turns({"a": rival("a", 1.5), "b": rival("b", 2.5), "c": rival("c", None)}, 2)  # type: ignore[dict-item]
    assert order == [(name, round) for round in range(3) for name in "abc"]
    assert times["a"] == [1.5, 1.5]
    assert times["b"] == [2.5, 2.5]
    assert len(times["c"]) == 2  # measured from outside
    assert all(took >= 0 for took in times["c"])


@pytest.mark.parametrize("k", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(k: float) -> None:
    assert exponent({x: 7 * x**k for x in (10, 100, 1_000, 10_000)}) == pytest.approx(k)


def test_a_goal_is_not_exceeded_or_is_reached() -> None:
    assert met(1.3, 1.3)
    assert not met(1.31, 1.3)
    assert met(5.0, AtLeast(5))
    assert not met(4.99, AtLeast(5))
