"""From one server to many: what is measured of one (bench/fleet.py) goes in, what a thousand would do comes out.

- One machine with its cores, a log that syncs, a database and some worker processes (`Machine`), fed with the processor
  time that a run takes of workers and server, predicts how many runs a second come out. One number is fitted, with one
  worker process: the time at each commit in which nobody works. What it says of two, four and eight worker processes is
  a prediction, and stands beside what was measured.
- Many servers, each with its share of the runs, as fast as the measured processor time lets it; one of them fails.

python -m bench.scale     prints both, from the figures in bench/results.json
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness import Say
from bench.simulation import Demand, Machine, arrivals, jump, serve

RESULTS = Path(__file__).with_name("results.json")
WORKERS = (1, 2, 4, 8)
STEPS = 10  # of a long run
COMMITS = {"short": 3, "long": STEPS + 2}  # it is taken, each of its steps is done, it ends
SECONDS = 5.0  # that are simulated of one machine
SEED = 23

SHARDS = (1, 10, 100, 1_000)
LOAD = 0.6  # of what a server can do
SPAN = 240.0  # seconds of arrivals
OUTAGE = 60.0  # seconds for which one server is away: its standby has to take over
SAMPLE = 8  # servers that are simulated at most
TENANTS = 100  # to a shard, for a look at what would happen if runs were shared out by tenant
GROWTH = (10, 100, 1_000)

GOALS: dict[str, float] = {}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    figures = json.loads(RESULTS.read_text())["figures"]
    if "fleet_1_runs_per_s" not in figures:
        raise SystemExit("bench: the simulation needs the figures of fleet; measure that first: python -m bench fleet")
    say("simulating one machine")
    found = validated(figures)
    say("simulating many servers")
    return found | one_server(figures) | many(figures, 2 if quick else SAMPLE)


# --- one machine


def demand_of(figures: Mapping[str, float], workers: int, kind: str, between: float = 0.0) -> Demand:
    """What a commit of such a run takes, as it was measured with so many worker processes.

    Of a processor that somebody else uses too, it takes longer.
    """
    shares = (figures[f"fleet_{workers}_{who}_percent"] for who in ("cpu_workers", "cpu_server", "idle"))
    each = COMMITS[kind] * 1e6 * min(sum(shares) / 100, 1.0)
    return Demand(
        figures[f"fleet_{workers}_workers_us_per_{kind}_run"] / each,
        figures[f"fleet_{workers}_server_us_per_{kind}_run"] / each,
        figures[f"fleet_{workers}_sync_us"] / 1e6,
        between,
    )


def rate(figures: Mapping[str, float], workers: int, kind: str, between: float, seconds: float = SECONDS) -> float:
    """Runs of a kind that come out in a second, by the model."""
    machine = Machine(workers, int(figures["fleet_cores"]), demand_of(figures, workers, kind, between), SEED)
    return machine.run(seconds) / COMMITS[kind]


def fitted(figures: Mapping[str, float], kind: str, measured: float) -> float:
    """The time between two commits with which the model does with one worker process what was measured."""
    low, high = 0.0, 0.2
    for _ in range(14):
        middle = (low + high) / 2
        if rate(figures, 1, kind, middle) > measured:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def validated(figures: Mapping[str, float]) -> dict[str, float]:
    """What the model says beside what was measured; the worst error of those that nothing was fitted to."""
    found, errors = dict[str, float](), list[float]()
    for kind, unit, each in (("short", "runs", 1), ("long", "steps", STEPS)):
        between = fitted(figures, kind, figures[f"fleet_1_{unit}_per_s"] / each)
        found[f"scale_between_us_{kind}"] = between * 1e6
        for workers in WORKERS:
            measured = figures[f"fleet_{workers}_{unit}_per_s"]
            predicted = rate(figures, workers, kind, between) * each
            found[f"scale_predicted_{workers}_{unit}_per_s"] = predicted
            if workers > 1:
                errors.append(abs(predicted / measured - 1))
    return found | {"scale_worst_error_percent": max(errors) * 100, "scale_seed": SEED}


# --- one server, with its workers elsewhere


def per_step(figures: Mapping[str, float]) -> tuple[float, float]:
    """Seconds of the server's processor for a run without its steps, and for a step; as with the most workers."""
    short, long = (figures[f"fleet_{WORKERS[-1]}_server_us_per_{kind}_run"] / 1e6 for kind in ("short", "long"))
    step = max(long - short, 0.0) / (STEPS - 1)
    return max(short - step, 0.0), step


def one_server(figures: Mapping[str, float]) -> dict[str, float]:
    """What one server carries at the load that is meant to be borne, when the workers are on other machines."""
    run, step = per_step(figures)
    cores = int(figures["fleet_cores"])
    runs = cores * LOAD / (run + STEPS * step)
    stored = figures["stored_run_bytes_pg"] + STEPS * figures["stored_step_bytes_pg"]
    day = 86_400
    return {
        "scale_load_percent": LOAD * 100,
        "scale_steps_of_a_run": STEPS,
        "scale_server_runs_per_s": runs,
        "scale_server_steps_per_s": runs * STEPS,
        "scale_server_million_runs_per_day": runs * day / 1e6,
        "scale_server_gb_per_day": runs * day * stored / 1e9,
        "scale_server_gb_30_days": runs * day * 30 * stored / 1e9,
        "scale_server_prune_share_percent": runs / figures["prune_runs_per_s_pg"] * 100,
        "scale_connections_per_worker": figures["fleet_idle_100_connections"] / figures["fleet_idle_100_workers"],
    }


# --- many servers


def weighted(values: Sequence[tuple[float, float]], percent: float) -> float:
    """A percentile of values that count by their weights."""
    ordered = sorted(values)
    left = sum(weight for _, weight in ordered) * percent / 100
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return ordered[-1][0]


def busiest(shards: int, keys: int, exponent: float) -> float:
    """The load of the busiest shard, where 1 is the mean, if keys that are not used alike share out the runs."""
    dice, loads = random.Random(SEED), [0.0] * shards
    weights = [(n + 1) ** -exponent for n in range(keys)]
    for weight in weights:
        loads[jump(dice.getrandbits(64), shards)] += weight
    return max(loads) / (sum(weights) / shards)


def many(figures: Mapping[str, float], sample: int) -> dict[str, float]:
    """More and more servers, each with the same load on the average, one of which is away for a while.

    What comes to one shard does not depend on what comes to another, so of a great many some are simulated, and each of
    these stands for several.
    """
    run, step = per_step(figures)
    service = (run + STEPS * step) / int(figures["fleet_cores"])
    alone = STEPS * figures["prune_without_p50_ms_pg"] / 1e3
    found: dict[str, float] = {"scale_outage_s": OUTAGE, "scale_tenants_per_shard": TENANTS}
    for shards in SHARDS:
        dice, begin = random.Random(SEED), SPAN / 6
        simulated = min(shards, sample)
        served = [
            serve(list(arrivals(LOAD / service, SPAN, dice)), service, alone, None if n else (begin, begin + OUTAGE))
            for n in range(simulated)
        ]
        failed, *others = served
        each = (shards - 1) / max(simulated - 1, 1)
        rest = [(second, each) for one in others for second in one.seconds]
        everybody = [(second, 1.0) for second in failed.seconds] + rest
        runs = len(failed.seconds) + each * sum(len(one.seconds) for one in others)
        found |= {
            f"scale_{shards}_runs_per_s": shards * LOAD / service,
            f"scale_{shards}_p50_ms": weighted(everybody, 50) * 1e3,
            f"scale_{shards}_p99_ms": weighted(everybody, 99) * 1e3,
            f"scale_{shards}_others_p99_ms": weighted(rest or everybody, 99) * 1e3,
            f"scale_{shards}_late_percent": failed.late / runs * 100,
            f"scale_{shards}_recovery_s": max(failed.caught_up - begin - OUTAGE, 0.0),
            f"scale_{shards}_busiest_by_tenant": busiest(shards, shards * TENANTS, 1.0),
            f"scale_{shards}_busiest_by_id": busiest(shards, shards * 400, 0.0),
        }
    return found | moved()


def moved(ids: int = 20_000) -> dict[str, float]:
    """Which part of the runs has to move when a shard is added."""
    dice = random.Random(SEED)
    keys = [dice.getrandbits(64) for _ in range(ids)]
    return {
        f"scale_moved_{shards}_percent": sum(jump(key, shards) != jump(key, shards + 1) for key in keys) / ids * 100
        for shards in GROWTH
    }


def main() -> None:
    figures = json.loads(RESULTS.read_text())["figures"]
    found = measure(Path(), print)
    print(f"\nseed {SEED}\n\n{'workers':>8} {'measured':>10} {'predicted':>10}")
    for unit, workers in itertools.product(("runs", "steps"), WORKERS):
        told = figures[f"fleet_{workers}_{unit}_per_s"], found[f"scale_predicted_{workers}_{unit}_per_s"]
        print(f"{workers:>8} {told[0]:>10,.0f} {told[1]:>10,.0f} {unit}/s, off by {abs(told[1] / told[0] - 1):.0%}")
    columns = ("runs_per_s", "p50_ms", "p99_ms", "others_p99_ms", "late_percent", "recovery_s", "busiest_by_tenant")
    print(f"\n{'servers':>8}" + "".join(f"{name:>19}" for name in columns))
    for shards in SHARDS:
        print(f"{shards:>8}" + "".join(f"{found[f'scale_{shards}_{name}']:>19,.2f}" for name in columns))
    print(f"\n{math.ceil(1e6 / found['scale_server_steps_per_s'])} such servers carry a million steps a second")


if __name__ == "__main__":
    main()
