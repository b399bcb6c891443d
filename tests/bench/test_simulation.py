"""The simulation behind docs/explanation/scale.md: where the answer is known without it, it gives that answer."""

import random

import pytest

from bench.scale import COMMITS, busiest, fitted, moved, one_server, per_step, rate, weighted
from bench.simulation import LARGEST, Demand, Machine, arrivals, families, jump, mean_family, serve

# --- one machine


def test_a_worker_that_never_waits_is_as_fast_as_its_processor() -> None:
    machine = Machine(1, 2, Demand(worker=0.001, server=0.00001, sync=0.0), seed=1)
    assert machine.run(5.0) == pytest.approx(1_000, rel=0.05)


def test_the_server_may_be_what_holds_it_up() -> None:
    machine = Machine(4, 8, Demand(worker=0.00001, server=0.001, sync=0.0), seed=1)
    assert machine.run(5.0) == pytest.approx(4 * 1_000, rel=0.05)  # each worker has one commit under way


def test_workers_and_server_share_the_cores() -> None:
    machine = Machine(8, 2, Demand(worker=0.001, server=0.001, sync=0.0), seed=1)
    assert machine.run(10.0) == pytest.approx(2 / 0.002, rel=0.05)


@pytest.mark.parametrize("workers", [1, 4])
def test_whoever_waits_for_the_log_is_synced_together(workers: int) -> None:
    """At best all runs under way are synced at once; at worst a worker needs two commits, and each waits two syncs."""
    machine = Machine(workers, 8, Demand(worker=0.000_001, server=0.000_001, sync=0.01), seed=1)
    assert 9 / 0.04 <= machine.run(10.0) / workers <= 10 / 0.01


def test_the_same_seed_gives_the_same_answer() -> None:
    demand = Demand(0.001, 0.001, 0.0005, 0.001)
    assert Machine(4, 2, demand, seed=3).run(2.0) == Machine(4, 2, demand, seed=3).run(2.0)


def figures(**more: float) -> dict[str, float]:
    """Of a fleet whose runs take the same whatever the number of workers."""
    found = {"fleet_cores": 2.0, "stored_run_bytes_pg": 1_000.0, "stored_step_bytes_pg": 100.0}
    found |= {"prune_runs_per_s_pg": 500.0, "fleet_idle_100_connections": 300.0, "fleet_idle_100_workers": 100.0}
    for workers in (1, 2, 4, 8):
        found |= {f"fleet_{workers}_workers_us_per_short_run": 900.0, f"fleet_{workers}_sync_us": 200.0}
        found |= {f"fleet_{workers}_workers_us_per_long_run": 2_700.0, f"fleet_{workers}_idle_percent": 20.0}
        found |= {f"fleet_{workers}_cpu_workers_percent": 50.0, f"fleet_{workers}_cpu_server_percent": 30.0}
        found |= {f"fleet_{workers}_server_us_per_short_run": 600.0, f"fleet_{workers}_server_us_per_long_run": 1_500.0}
    return found | more


def test_what_is_fitted_makes_one_worker_do_what_was_measured() -> None:
    between = fitted(figures(), "short", 300.0)
    assert rate(figures(), 1, "short", between) == pytest.approx(300.0, rel=0.03)
    assert between > 0


def test_a_processor_that_others_use_is_slower() -> None:
    alone, shared = (rate(figures(fleet_8_idle_percent=idle), 8, "long", 0.0) for idle in (20.0, -20.0))
    assert shared == pytest.approx(alone * 0.6, rel=0.05)


def test_more_workers_do_more_until_the_cores_are_busy() -> None:
    between = fitted(figures(), "long", 200.0)
    rates = [rate(figures(), workers, "long", between, 5.0) for workers in (1, 2, 8)]
    assert rates[0] < rates[1] < rates[2] * 1.02
    assert rates[2] == pytest.approx(2 / 0.0042, rel=0.08)
    assert COMMITS == {"short": 3, "long": 12}


def test_what_a_run_takes_of_the_server_is_told_from_two_kinds_of_runs() -> None:
    assert per_step(figures()) == pytest.approx((0.0005, 0.0001))
    told = one_server(figures())
    assert told["scale_server_runs_per_s"] == pytest.approx(2 * 0.6 / 0.0015)
    assert told["scale_server_gb_per_day"] == pytest.approx(800 * 86_400 * 2_000 / 1e9)


# --- many servers


def test_a_shard_that_is_added_takes_its_part_and_nothing_else_moves() -> None:
    keys = [random.Random(4).getrandbits(64) * n % (1 << 64) for n in range(1, 3_000)]
    before, after = ([jump(key, shards) for key in keys] for shards in (9, 10))
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {9}
    assert set(after) == set(range(10))
    assert moved(4_000)["scale_moved_10_percent"] == pytest.approx(100 / 11, rel=0.2)


def test_ids_are_shared_out_evenly_and_tenants_are_not() -> None:
    assert busiest(10, 10_000, 0.0) < 1.2
    assert busiest(100, 10_000, 1.0) > 5


def test_families_are_as_large_as_they_are_said_to_be() -> None:
    sizes = [size for size, _ in zip(families(random.Random(6)), range(40_000), strict=False)]
    assert max(sizes) <= LARGEST
    assert sum(sizes) / len(sizes) == pytest.approx(mean_family(), rel=0.15)


def test_as_many_runs_come_as_are_meant_to() -> None:
    found = list(arrivals(100.0, 500.0, random.Random(7)))
    assert len(found) / 500 == pytest.approx(100, rel=0.1)
    assert found == sorted(found)


def test_a_server_that_is_never_busy_makes_nobody_wait() -> None:
    served = serve([0.0, 1.0, 2.0], service=0.1, alone=0.5)
    assert served.seconds == pytest.approx([0.6, 0.6, 0.6])
    assert (served.busy, served.late) == (pytest.approx(0.3), 0)


def test_runs_wait_for_those_before_them() -> None:
    assert serve([0.0, 0.0, 0.0], service=1.0, alone=0.0).seconds == pytest.approx([1.0, 2.0, 3.0])


def test_a_server_that_was_away_catches_up() -> None:
    """Ten seconds of arrivals at half of what it can do wait for it; they and what comes meanwhile take twenty."""
    served = serve([n / 2 for n in range(100)], service=0.25, alone=0.0, away=(10.0, 20.0))
    assert max(served.seconds) == pytest.approx(10.25, abs=0.3)
    assert served.caught_up == pytest.approx(30.0, abs=1.0)
    assert served.late == pytest.approx(40, abs=2)
    assert served.seconds[-1] == pytest.approx(0.25)


def test_a_percentile_counts_by_weights() -> None:
    assert weighted([(1.0, 99.0), (5.0, 1.0)], 50) == 1.0
    assert weighted([(1.0, 90.0), (5.0, 10.0)], 99) == 5.0
